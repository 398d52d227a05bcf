"""The trunk: what goes in, what must not matter, what is refused."""

import copy
import math

import pytest
import torch
from transformers import DataCollatorWithFlattening, RobertaConfig, RobertaForMaskedLM

import hf_linear_attn as hla
from hf_linear_attn import register_attention
from hf_linear_attn.attention import ATTENTION
from hf_linear_attn.models.layers import MLP, RMSNorm, SimpleRMSNorm, SinusoidalPositions
from tests.conftest import TINY, VARIANTS
from tests.errors import relative_error


def tokens(batch=2, length=12):
    return torch.randint(3, 100, (batch, length))


def pad(ids, pads, side):
    ends = (pads, 0) if side == "left" else (0, pads)
    mask = torch.nn.functional.pad(torch.ones_like(ids), ends)
    # The pads hold real ids, so that only the mask tells them apart.
    return torch.nn.functional.pad(ids, ends, value=77), mask


SWITCHES = {
    "pre_norm": {"norm_position": "pre"},
    "rmsnorm": {"norm_type": "rmsnorm"},
    "srmsnorm_glu": {"norm_type": "srmsnorm", "mlp_type": "glu", "glu_act": "identity"},
    "grouped_heads": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12},
    "sinusoidal": {"position_embedding_type": "sinusoidal"},
    "rope": {"position_embedding_type": "rope", "rope_parameters": {"rope_theta": 500.0}},
    "lrpe": {"position_embedding_type": "lrpe"},
    "no_positions": {"position_embedding_type": "none"},
    "no_biases": {"attention_bias": False, "mlp_bias": False, "lm_head_transform": False},
    "qk_norm_scale": {"qk_norm": True, "logit_scale": 0.5},
    "types": {"type_vocab_size": 2},
    "untied": {"tie_word_embeddings": False},
}


@pytest.mark.parametrize("switch", list(SWITCHES))
def test_every_switch_trains_every_parameter_and_ignores_padding(make_model, switch):
    model = make_model(**SWITCHES[switch])
    ids = tokens()
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    for side in ("left", "right"):
        wide, mask = pad(ids, 5, side)
        real = slice(5, None) if side == "left" else slice(0, 12)
        padded = model(input_ids=wide, attention_mask=mask).logits[:, real]
        assert relative_error(padded, out.logits) <= 1e-5


@pytest.mark.parametrize("switch", list(SWITCHES))
def test_every_switch_changes_the_function_or_the_parameters(make_model, switch):
    plain, other = make_model(), make_model(**SWITCHES[switch])
    if plain.config.to_dict() == other.config.to_dict():
        # The variant's default (TransNormer's LRPE): against no positions at all.
        plain = make_model(position_embedding_type="none")
    ids = tokens()
    names = {n: p.shape for n, p in plain.named_parameters()}
    if names == {n: p.shape for n, p in other.named_parameters()}:
        other.load_state_dict(plain.state_dict(), strict=False)
        assert relative_error(other(input_ids=ids).logits, plain(input_ids=ids).logits) > 1e-3


@pytest.mark.parametrize("pads", [3, 12])
@pytest.mark.parametrize("side", ["left", "right"])
def test_b12_padding_changes_neither_logits_nor_gradients(make_model, side, pads):
    model = make_model()
    ids = tokens(length=5)
    embeds = model.model.embed_tokens(ids).detach().requires_grad_()
    plain = model(inputs_embeds=embeds).logits
    plain.square().sum().backward()

    ends = (0, 0, pads, 0) if side == "left" else (0, 0, 0, pads)
    wide = torch.nn.functional.pad(embeds.detach(), ends, value=3.0).requires_grad_()
    _, mask = pad(ids, pads, side)
    real = mask[0].bool()
    logits = model(inputs_embeds=wide, attention_mask=mask).logits[:, real]
    logits.square().sum().backward()
    assert relative_error(logits, plain) <= 1e-5
    assert relative_error(wide.grad[:, real], embeds.grad) <= 1e-5
    assert wide.grad[:, ~real].abs().max() == 0


def test_a_fully_padded_row_is_finite(make_model):
    model = make_model()
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[0] = 0
    labels = ids.masked_fill(mask == 0, -100)
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def forms_of_one_mask(mask):
    wide = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1).bool()
    lowest = torch.finfo(torch.float32).min
    return {
        "bool": mask.bool(),
        "int64": mask,
        "float32": mask.float(),
        "4d bool": wide,
        "4d one row": wide[:, :, :1],
        "4d additive": torch.zeros(wide.shape).masked_fill(~wide, lowest),
        "4d additive -inf": torch.zeros(wide.shape).masked_fill(~wide, -torch.inf),
    }


def test_b17_every_form_of_a_padding_mask_gives_one_result(make_model):
    model = make_model()
    ids, mask = pad(tokens(length=8), 4, "left")
    mask[0, 4] = 0
    results = {
        k: model(input_ids=ids, attention_mask=m).logits for k, m in forms_of_one_mask(mask).items()
    }
    unmasked = model(input_ids=ids).logits
    for name, logits in results.items():
        assert torch.equal(logits, results["int64"]), name
        assert relative_error(logits, unmasked) > 1e-3


def test_b17_a_mask_with_a_hole_is_refused(make_model):
    model = make_model()
    ids, mask = pad(tokens(length=8), 4, "right")
    holed = forms_of_one_mask(mask)["4d bool"].clone()
    holed[1, 0, 2, 3] = False
    with pytest.raises(ValueError, match="in row 1 token 2 may not see token 3"):
        model(input_ids=ids, attention_mask=holed)
    triangle = torch.ones(12, 12).tril().bool().expand(2, 1, 12, 12)
    with pytest.raises(ValueError, match="must be padding alone"):
        model(input_ids=ids, attention_mask=triangle)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 11), "shape"),
        (torch.ones(2, 12, 12), "2 or 4 dimensions"),
        (torch.full((2, 12), 2), "other values"),
        (torch.zeros(2, 12).fill_(-1e9), "other values"),
        (torch.zeros(2, 4, 12, 12), "one for all heads"),
        (torch.full((2, 1, 12, 12), -0.5), "cannot add a bias"),
    ],
)
def test_other_masks_are_refused(make_model, mask, message):
    with pytest.raises(ValueError, match=message):
        make_model()(input_ids=tokens(), attention_mask=mask)


def test_b38_the_table_of_positions_ends_with_a_clear_error(make_model):
    model = make_model(max_position_embeddings=32, position_embedding_type="learned")
    assert model(input_ids=tokens(length=32)).logits.shape[1] == 32
    with pytest.raises(ValueError, match="32 positions"):
        model(input_ids=tokens(length=33))
    # Pads take no position.
    ids, mask = pad(tokens(length=32), 9, "left")
    assert torch.isfinite(model(input_ids=ids, attention_mask=mask).logits[:, 9:]).all()


def test_b38_cosformer_s_horizon_ends_with_a_clear_error():
    config = hla.CosformerConfig(**{**TINY, "cos_horizon": 4})
    model = hla.CosformerModel(config)
    model(input_ids=tokens(length=4))
    with pytest.raises(ValueError, match="position 4 is outside cosFormer's horizon of 4"):
        model(input_ids=tokens(length=5))


def test_without_a_table_only_cosformer_has_an_end(variant, make_model):
    model = make_model(position_embedding_type="sinusoidal")
    if variant == "cosformer":
        with pytest.raises(ValueError, match="horizon"):
            model(input_ids=tokens(length=40))
    else:
        assert torch.isfinite(model(input_ids=tokens(length=40)).logits).all()


def test_inputs_embeds_equal_input_ids(make_model):
    model = make_model()
    ids, mask = pad(tokens(), 3, "left")
    wanted = model(input_ids=ids, attention_mask=mask).logits
    embeds = model.get_input_embeddings()(ids)
    assert torch.equal(model(inputs_embeds=embeds, attention_mask=mask).logits, wanted)
    for wrong in ({}, {"input_ids": ids, "inputs_embeds": embeds}):
        with pytest.raises(ValueError, match="exactly one"):
            model(**wrong)
    with pytest.raises(ValueError, match="inputs_embeds"):
        model(inputs_embeds=embeds[..., :8])


@pytest.mark.parametrize("keywords", ["all", "seq_idx", "cu_seq_lens", "position_ids"])
def test_packed_documents_equal_documents_alone(make_model, keywords):
    model = make_model()
    documents = [torch.randint(3, 100, (n,)) for n in (5, 1, 9, 17)]
    features = [{"input_ids": d, "labels": d} for d in documents]
    collator = DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    batch = collator(features)
    kept = {
        "all": set(batch),
        "seq_idx": {"input_ids", "seq_idx"},
        "cu_seq_lens": {"input_ids", "cu_seq_lens_q", "cu_seq_lens_k"},
        "position_ids": {"input_ids", "position_ids"},
    }[keywords]
    logits = model(**{k: v for k, v in batch.items() if k in kept}).logits[0]
    start = 0
    for document in documents:
        stop = start + len(document)
        alone = model(input_ids=document[None]).logits[0]
        assert relative_error(logits[start:stop], alone) <= 1e-5
        start = stop


def test_restarts_of_positions_mean_documents_only_where_no_mask_was_passed(variant, make_model):
    """Whether a batch-mate has a pad must not decide what a row's positions mean."""
    # Blocks refuse positions that fall inside a document.
    layers = {"layer_attention": "transnormer_norm", "position_embedding_type": "learned"}
    model = make_model(**(layers if variant == "transnormer" else {}))
    ids = tokens()
    positions = torch.tensor([[0, 1, 2, 3, 4, 5] * 2, list(range(12))])
    full = torch.ones_like(ids)
    padded = full.clone()
    padded[1, -1] = 0
    one = model(input_ids=ids, position_ids=positions, attention_mask=full).logits
    other = model(input_ids=ids, position_ids=positions, attention_mask=padded).logits
    assert relative_error(other[0], one[0]) <= 1e-5
    packed = model(input_ids=ids, position_ids=positions).logits
    assert relative_error(packed[0], one[0]) > 1e-2


def test_an_empty_document_in_a_pack_changes_nothing(make_model):
    model = make_model()
    ids = tokens(1, 10)
    plain = model(input_ids=ids, cu_seq_lens_q=torch.tensor([0, 4, 10])).logits
    empty = model(input_ids=ids, cu_seq_lens_q=torch.tensor([0, 4, 4, 10])).logits
    assert torch.equal(empty, plain)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"cu_seq_lens_q": torch.tensor([0, 4, 9])}, "ascend from 0 to the number of tokens"),
        ({"cu_seq_lens_q": torch.tensor([0, 20, 24])}, "over the end of a row"),
        ({"cu_seq_lens_k": torch.tensor([0, 24])}, "alike"),
        ({"position_ids": torch.arange(12.0)[None]}, "must be integers"),
        ({"token_type_ids": torch.zeros(2, 1).long()}, "token_type_ids have shape"),
        ({"seq_idx": torch.tensor([[0, 1, 0, *[2] * 9]] * 2)}, "not contiguous"),
        ({"seq_idx": torch.zeros(2, 3).long()}, "seq_idx has shape"),
        ({"position_ids": torch.zeros(2, 3).long()}, "position_ids has shape"),
        ({"position_ids": torch.arange(12)[None] - 1}, "position -1|start at 0 or above"),
        ({"token_type_ids": torch.ones(2, 12).long()}, "type_vocab_size=0"),
        ({"output_atentions": True}, "output_attentions"),
        ({"use_cache": True}, "no cache"),
        ({"atention_mask": torch.ones(2, 12)}, "Did you mean 'attention_mask'"),
        ({"labels": torch.zeros(2, 3).long()}, "labels have shape"),
        ({"sparse_prediction": True}, "needs labels"),
    ],
)
def test_what_cannot_be_honoured_is_refused(make_model, keywords, message):
    with pytest.raises(ValueError, match=message):
        make_model()(input_ids=tokens(), **keywords)


def test_token_types_of_zero_say_nothing(make_model):
    model = make_model()
    ids = tokens()
    plain = model(input_ids=ids).logits
    assert torch.equal(model(input_ids=ids, token_type_ids=torch.zeros_like(ids)).logits, plain)
    model = make_model(type_vocab_size=2)
    first = model(input_ids=ids, token_type_ids=torch.zeros_like(ids)).logits
    second = model(input_ids=ids, token_type_ids=torch.ones_like(ids)).logits
    assert torch.equal(model(input_ids=ids).logits, first)
    assert not torch.allclose(first, second)


def test_hidden_states_and_tuples(make_model):
    model = make_model()
    ids = tokens()
    out = model(input_ids=ids, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    last = model.model(input_ids=ids).last_hidden_state
    assert torch.equal(out.hidden_states[-1], last)
    logits = model(input_ids=ids, return_dict=False)[0]
    assert torch.equal(logits, out.logits)


def test_b05_a_model_runs_under_autocast(make_model):
    model = make_model(hidden_dropout_prob=0.0, qk_norm=True).train()
    ids = tokens()
    plain = model(input_ids=ids, labels=ids).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    assert loss.item() == pytest.approx(plain.item(), rel=1e-2)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_stay_near_the_full_one(make_model, dtype):
    model = make_model()
    ids = tokens()
    plain = model(input_ids=ids).logits
    assert relative_error(copy.deepcopy(model).to(dtype)(input_ids=ids).logits, plain) <= 5e-2


def test_a_batch_without_tokens_is_refused(make_model):
    for shape in ((2, 0), (0, 5)):
        with pytest.raises(ValueError, match="a token at least"):
            make_model()(input_ids=torch.zeros(shape, dtype=torch.long))


def test_return_dict_false_in_the_config_gives_tuples(make_model):
    model = make_model(return_dict=False)
    ids = tokens()
    assert torch.equal(model(input_ids=ids)[0], model(input_ids=ids, return_dict=True).logits)


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_dropout_acts_after_embeddings_attention_and_mlp(make_model, monkeypatch, norm_position):
    model = make_model(hidden_dropout_prob=0.25, norm_position=norm_position).train()
    rates = []
    monkeypatch.setattr(
        torch.nn.functional, "dropout", lambda x, p, *a: (rates.append(p), x * 0)[1]
    )
    out = model.model(input_ids=tokens(), output_hidden_states=True)
    assert rates == [0.25] * 5
    assert out.hidden_states[0].abs().max() == 0


def test_the_two_mlps():
    x = torch.randn(3, 5, 32)
    for kind, act, gate in (("mlp", None, None), ("glu", None, "gelu"), ("glu", "silu", "silu")):
        config = hla.SoftmaxConfig(**TINY, mlp_type=kind, glu_act=act).settle(is_decoder=False)
        mlp = MLP(config)
        if gate is None:
            expected = mlp.down_proj(torch.nn.functional.gelu(mlp.up_proj(x)))
        else:
            gated = getattr(torch.nn.functional, gate)(mlp.gate_proj(x))
            expected = mlp.down_proj(gated * mlp.up_proj(x))
        assert torch.allclose(mlp(x), expected, atol=1e-6)


def test_norms_of_embeddings_and_output():
    ids = tokens()
    normed = hla.SoftmaxModel(hla.SoftmaxConfig(**TINY)).eval()
    bare = hla.SoftmaxModel(hla.SoftmaxConfig(**TINY, embedding_norm=False)).eval()
    first = normed(input_ids=ids, output_hidden_states=True).hidden_states[0]
    assert torch.allclose(first.var(-1, correction=0), torch.ones(2, 12), atol=1e-2)
    wanted = bare.embed_tokens(ids) + bare.embeddings.embed_positions.weight[:12]
    assert torch.equal(bare(input_ids=ids, output_hidden_states=True).hidden_states[0], wanted)
    for final_norm, expected in ((None, True), (True, True), (False, False)):
        config = hla.SoftmaxConfig(**TINY, norm_position="pre", final_norm=final_norm)
        last = hla.SoftmaxModel(config).eval()(input_ids=ids).last_hidden_state
        unit = torch.allclose(last.var(-1, correction=0), torch.ones(2, 12), atol=1e-2)
        assert unit is expected


def test_rms_norms_and_sinusoids_are_their_formulas():
    x = torch.randn(4, 7, 32)
    plain = x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt()
    assert torch.allclose(SimpleRMSNorm(0.5)(x), plain, atol=1e-6)
    weighted = RMSNorm(32, 0.5)
    torch.nn.init.normal_(weighted.weight)
    assert torch.allclose(weighted(x), plain * weighted.weight, atol=1e-6)
    found = SinusoidalPositions(8)(torch.tensor([[0, 3, 50]]))[0]
    for row, p in zip(found, (0, 3, 50), strict=True):
        angles = [p / 10000 ** (2 * i / 8) for i in range(4)]
        wanted = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)])
        assert torch.allclose(row, wanted, atol=1e-6)


def test_every_layer_s_horizon_is_checked():
    """Two layers of one class under two names have a horizon each."""
    register_attention("cosformer_short", hla.CosformerAttention)
    try:
        for layers in (["cosformer_short", "cosformer"], ["cosformer", "cosformer_short"]):
            config = hla.CosformerConfig(
                **TINY, layer_attention=layers,
                attention_kwargs={"cosformer_short": {"cos_horizon": 4}},
            )  # fmt: skip
            with pytest.raises(ValueError, match="horizon of 4 tokens"):
                hla.CosformerModel(config)(input_ids=tokens())
    finally:
        del ATTENTION["cosformer_short"]


def hybrid(**fields):
    return hla.CosformerConfig(**{**TINY, "num_hidden_layers": 3, **fields})


def test_hybrids_by_layer_attention():
    layers = ["cosformer", "softmax", "linear_transformer"]
    config = hybrid(
        layer_attention=layers, cos_horizon=20, feature_map="elu_plus_one",
        attention_probs_dropout_prob=0.25,
        attention_kwargs={"linear_transformer": {"attention_eps": 1e-3}},
    )  # fmt: skip
    model = hla.CosformerForMaskedLM(config).eval()
    mechanisms = [layer.self_attn.mechanism for layer in model.model.layers]
    assert [type(m).__name__ for m in mechanisms] == [
        "CosformerAttention", "SoftmaxAttention", "LinearTransformerAttention",
    ]  # fmt: skip
    assert mechanisms[0].cos_horizon == 20
    assert mechanisms[1].attention_probs_dropout_prob == 0.25
    assert mechanisms[2].attention_eps == 1e-3
    ids, mask = pad(tokens(), 4, "left")
    plain = model(input_ids=ids[:, 4:]).logits
    assert relative_error(model(input_ids=ids, attention_mask=mask).logits[:, 4:], plain) <= 1e-5


def test_softmax_layers_are_the_same_in_any_variant():
    ids = tokens()
    models = []
    for config_class, _, model_class in VARIANTS.values():
        torch.manual_seed(0)
        trunk = {
            "layer_attention": "softmax", "norm_type": "layernorm", "mlp_type": "mlp",
            "hidden_act": "gelu", "position_embedding_type": "learned", "norm_eps": 1e-5,
        }  # fmt: skip
        config = config_class(**TINY, **trunk)
        models.append(model_class(config).eval()(input_ids=ids).logits)
    assert all(torch.equal(logits, models[0]) for logits in models)


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_attn_implementation_reaches_the_softmax_layers(name, monkeypatch):
    from hf_linear_attn.attention.softmax import _FUNCTIONS

    calls = []
    for key, function in list(_FUNCTIONS.items()):
        monkeypatch.setitem(
            _FUNCTIONS, key, lambda *a, key=key, f=function, **k: (calls.append(key), f(*a, **k))[1]
        )
    config = hla.SoftmaxConfig(**TINY)
    model = hla.SoftmaxForMaskedLM._from_config(config, attn_implementation=name)
    model(input_ids=tokens())
    assert set(calls) == {name}
    other = {"eager": "sdpa", "sdpa": "eager"}[name]
    calls.clear()
    model.set_attn_implementation(other)
    model(input_ids=tokens())
    assert set(calls) == {other}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flash_attention_2", r"hf-linear-attn\[flash\]"),
        ("flex_attention", '`attn_implementation="flex_attention"` is not supported'),
        ("cosformer", '`attn_implementation="cosformer"` is not supported'),
    ],
)
def test_attn_implementations_that_cannot_run_are_refused(make_config, variant, name, message):
    if variant == "softmax" or name != "flash_attention_2":
        with pytest.raises(ValueError, match=message):
            VARIANTS[variant][2]._from_config(make_config(), attn_implementation=name)


def test_the_trunk_in_softmax_mode_is_roberta():
    """Same weights, same logits as Transformers' RoBERTa: norms, residuals, positions, head."""
    sizes = {
        "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "initializer_range": 0.2,
    }  # fmt: skip
    theirs = RobertaForMaskedLM(
        RobertaConfig(**sizes, max_position_embeddings=34, type_vocab_size=1)
    ).eval()
    for norm in (m for m in theirs.modules() if isinstance(m, torch.nn.LayerNorm)):
        torch.nn.init.normal_(norm.weight, mean=1, std=0.3)
        torch.nn.init.normal_(norm.bias, std=0.3)
    torch.nn.init.normal_(theirs.lm_head.bias)
    ours = hla.SoftmaxForMaskedLM(
        hla.SoftmaxConfig(
            **sizes, max_position_embeddings=32, type_vocab_size=1,
            norm_eps=theirs.config.layer_norm_eps,
        )
    ).eval()  # fmt: skip
    ours.load_state_dict(roberta_names(theirs.state_dict()))
    ids, mask = pad(tokens(), 3, "right")
    ids[:, 12:] = 1  # RoBERTa finds its pads by their id
    wanted = theirs(input_ids=ids, attention_mask=mask).logits[:, :12]
    assert relative_error(ours(input_ids=ids, attention_mask=mask).logits[:, :12], wanted) <= 1e-5


def roberta_names(state):
    renamed = {
        "model.embed_tokens.weight": state["roberta.embeddings.word_embeddings.weight"],
        "model.embeddings.embed_positions.weight": state[
            "roberta.embeddings.position_embeddings.weight"
        ][2:],
        "model.embeddings.embed_types.weight": state[
            "roberta.embeddings.token_type_embeddings.weight"
        ],
        "lm_head.weight": state["lm_head.decoder.weight"],
        "lm_head.bias": state["lm_head.bias"],
    }
    modules = {
        "roberta.embeddings.LayerNorm": "model.embeddings.norm",
        "lm_head.dense": "lm_head_transform.dense",
        "lm_head.layer_norm": "lm_head_transform.norm",
    }
    for i in range(2):
        theirs, ours = f"roberta.encoder.layer.{i}", f"model.layers.{i}"
        modules |= {
            f"{theirs}.attention.self.query": f"{ours}.self_attn.q_proj",
            f"{theirs}.attention.self.key": f"{ours}.self_attn.k_proj",
            f"{theirs}.attention.self.value": f"{ours}.self_attn.v_proj",
            f"{theirs}.attention.output.dense": f"{ours}.self_attn.o_proj",
            f"{theirs}.attention.output.LayerNorm": f"{ours}.attention_norm",
            f"{theirs}.intermediate.dense": f"{ours}.mlp.up_proj",
            f"{theirs}.output.dense": f"{ours}.mlp.down_proj",
            f"{theirs}.output.LayerNorm": f"{ours}.mlp_norm",
        }
    for theirs, ours in modules.items():
        for kind in ("weight", "bias"):
            renamed[f"{ours}.{kind}"] = state[f"{theirs}.{kind}"]
    return renamed
