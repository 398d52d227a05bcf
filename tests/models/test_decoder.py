"""Causal language models: what they are, what a token sees, what is kept on disk."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
)

import hf_linear_attn as hla
from hf_linear_attn import register_attention
from hf_linear_attn.attention import ATTENTION
from tests.conftest import CAUSAL_VARIANTS, TINY
from tests.errors import relative_error


def tokens(batch=2, length=12):
    return torch.randint(3, 100, (batch, length))


def pad(ids, pads, side):
    ends = (pads, 0) if side == "left" else (0, pads)
    mask = torch.nn.functional.pad(torch.ones_like(ids), ends)
    return torch.nn.functional.pad(ids, ends, value=77), mask


def test_defaults_are_gpt_2_s_shape(decoder_kind):
    config_class, _, own = CAUSAL_VARIANTS[decoder_kind]
    config = config_class(**{**TINY, **own}).settle(is_decoder=True)
    found = (
        config.norm_position, config.embedding_norm, config.final_norm, config.lm_head_transform,
    )  # fmt: skip
    # TransNormer has its embeddings normed, as in its paper.
    assert found == ("pre", decoder_kind == "transnormer", True, False)
    post = config_class(**{**TINY, **own}, norm_position="post").settle(is_decoder=True)
    assert (post.norm_position, post.final_norm) == ("post", False)


def test_the_class_decides_what_a_model_is(make_decoder, decoder_kind):
    config_class, model_class, own = CAUSAL_VARIANTS[decoder_kind]
    fields = {**TINY, **own}
    config = config_class(**fields)
    assert type(AutoModelForCausalLM.from_config(config)) is model_class
    assert config.is_decoder is None
    assert make_decoder().config.is_decoder is True
    encoder = config_class(**fields, is_decoder=False)
    decoder = config_class(**fields, is_decoder=True)
    assert AutoModel.from_config(config).config.is_decoder is False
    assert AutoModel.from_config(decoder).config.is_decoder is True
    with pytest.raises(ValueError, match="is_decoder=False, the model class is for is_decoder=Tr"):
        AutoModelForCausalLM.from_config(encoder)
    with pytest.raises(ValueError, match="is_decoder=True, the model class is for is_decoder=Fa"):
        AutoModelForMaskedLM.from_config(decoder)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("length", [24, 65])
def test_b16_the_future_changes_nothing(make_decoder, length, training):
    model = make_decoder(max_position_embeddings=80, hidden_dropout_prob=0.0).train(training)
    ids = tokens(2, length)
    embeds = model.model.embed_tokens(ids).detach().requires_grad_()
    whole = model(inputs_embeds=embeds).logits
    for t in (0, 7, 15, 16, 23):
        other = ids.clone()
        other[:, t + 1 :] = tokens(2, length)[:, t + 1 :]
        found = model(input_ids=other).logits
        assert relative_error(found[:, : t + 1], whole[:, : t + 1]) <= 1e-6
        (grad,) = torch.autograd.grad(whole[:, t].square().sum(), embeds, retain_graph=True)
        assert torch.count_nonzero(grad[:, t + 1 :]) == 0
        assert all(row.abs().max() > 0 for row in grad[:, : t + 1].transpose(0, 1))


class LooksAhead(hla.LinearTransformerAttention):
    supports_causal = False
    no_causal_reason = "its landmarks average over all tokens"


def test_b16_a_mechanism_without_a_causal_form_is_refused(decoder_kind):
    config_class, model_class, own = CAUSAL_VARIANTS[decoder_kind]
    register_attention("looks_ahead", LooksAhead)
    message = "a decoder cannot use 'looks_ahead': LooksAhead has no causal form: its landmarks av"
    try:
        fields = {**TINY, **own, "layer_attention": ["softmax", "looks_ahead"]}
        config = config_class(**fields)
        AutoModelForMaskedLM.from_config(config)
        for build in (model_class, lambda c: c.settle(is_decoder=True)):
            with pytest.raises(ValueError, match=message):
                build(config)
        with pytest.raises(ValueError, match=message):
            config_class(**fields, is_decoder=True)
        x = torch.ones(1, 1, 2, 4)
        with pytest.raises(ValueError, match="has no causal form: its landmarks"):
            LooksAhead()(x, x, x, causal=True)
    finally:
        del ATTENTION["looks_ahead"]


def test_a_horizon_of_the_row_s_length_is_refused_when_a_decoder_is_built():
    config = hla.CosformerConfig(**TINY, cos_horizon="length")
    hla.CosformerForMaskedLM(config)
    with pytest.raises(
        ValueError, match=r"cos_horizon='length' the weight .* tokens that come late"
    ):
        hla.CosformerForCausalLM(config)


@pytest.mark.parametrize("pads", [3, 12])
@pytest.mark.parametrize("side", ["left", "right"])
def test_b12_padding_changes_neither_logits_nor_gradients(make_decoder, side, pads):
    model = make_decoder()
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


def test_b24_positions_count_real_tokens(make_decoder):
    model = make_decoder()
    seen = []
    model.model.embeddings.register_forward_pre_hook(lambda _, args: seen.append(args[1]))
    ids, mask = tokens(2, 7), torch.ones(2, 7, dtype=torch.long)
    mask[0, :4] = 0
    logits = model(input_ids=ids, attention_mask=mask).logits
    assert seen[0].tolist() == [[0, 0, 0, 0, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6]]
    assert relative_error(logits[0, 4:], model(input_ids=ids[:1, 4:]).logits[0]) <= 1e-4
    assert relative_error(logits[1], model(input_ids=ids[1:]).logits[0]) <= 1e-4


def test_b41_every_parameter_reaches_the_loss(make_decoder):
    model = make_decoder(type_vocab_size=2).train()
    ids = tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def causal_forms(mask):
    n = mask.shape[1]
    pairs = (mask[:, None] & torch.ones(n, n).tril().bool())[:, None]
    lowest = torch.finfo(torch.float32).min
    return {
        "bool": mask,
        "int64": mask.long(),
        "float32": mask.float(),
        "4d bool": pairs,
        "4d additive": torch.zeros(pairs.shape).masked_fill(~pairs, lowest),
        "4d additive -inf": torch.zeros(pairs.shape).masked_fill(~pairs, -torch.inf),
        # Whatever stands in the rows of pads, they are nobody's business.
        "4d blank pads": pairs & mask[:, None, :, None],
    }


@pytest.mark.parametrize("side", ["left", "right"])
def test_b17_every_form_of_a_mask_gives_one_result(make_decoder, side):
    model = make_decoder()
    ids, mask = pad(tokens(length=8), 4, side)
    mask = mask.bool()
    mask[0, 4] = mask[0, 7] = False
    results = {
        k: model(input_ids=ids, attention_mask=m).logits[mask]
        for k, m in causal_forms(mask).items()
    }
    unmasked = model(input_ids=ids).logits[mask]
    for name, logits in results.items():
        assert torch.equal(logits, results["int64"]), name
        assert relative_error(logits, unmasked) > 1e-3


def test_b17_other_4_d_masks_are_refused(make_decoder):
    model = make_decoder()
    ids, mask = pad(tokens(length=8), 4, "right")
    holed = causal_forms(mask.bool())["4d bool"].clone()
    holed[1, 0, 5, 3] = False
    with pytest.raises(ValueError, match="in row 1 token 5 may not see token 3"):
        model(input_ids=ids, attention_mask=holed)
    with pytest.raises(ValueError, match="in row 0 token 0 sees token 1"):
        model(input_ids=ids, attention_mask=torch.ones(2, 1, 12, 12).bool())
    cache = model(input_ids=ids).cache
    step = torch.ones(2, 1, 1, 13).bool()
    step[1, 0, 0, 3] = False
    with pytest.raises(ValueError, match=r"\[12, 11\] real tokens where"):
        model(input_ids=ids[:, :1], attention_mask=step, cache=cache)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"labels": torch.zeros(2, 3).long()}, "labels have shape"),
        ({"labels": torch.zeros(2, 12).long(), "logits_to_keep": 1}, "logits of every position"),
        ({"atention_mask": torch.ones(2, 12)}, "Did you mean 'attention_mask'"),
        ({"sparse_prediction": True}, "unknown argument 'sparse_prediction'"),
        ({"output_atentions": True}, "output_attentions"),
        ({"attention_mask": torch.ones(2, 11)}, "attention_mask has shape"),
        ({"inputs_embeds": torch.ones(2, 12, 32)}, "exactly one"),
    ],
)
def test_what_cannot_be_honoured_is_refused(make_decoder, keywords, message):
    with pytest.raises(ValueError, match=message):
        make_decoder()(input_ids=tokens(), **keywords)


def test_logits_of_some_positions(make_decoder):
    model = make_decoder()
    ids = tokens()
    whole = model(input_ids=ids).logits
    assert relative_error(model(input_ids=ids, logits_to_keep=3).logits, whole[:, -3:]) <= 1e-6
    chosen = torch.tensor([0, 5])
    assert relative_error(model(input_ids=ids, logits_to_keep=chosen).logits, whole[:, [0, 5]]) <= (
        1e-6
    )


def test_the_head_of_a_decoder(make_decoder):
    model = make_decoder(logit_scale=0.5)
    assert model.lm_head.bias is None
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    ids = tokens()
    out = model(input_ids=ids, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    wanted = out.hidden_states[-1] @ model.lm_head.weight.T * 0.5
    assert relative_error(out.logits, wanted) <= 1e-6
    model = make_decoder(lm_head_transform=True)
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    x = model.model(input_ids=ids).last_hidden_state
    wanted = model.lm_head(model.lm_head_transform(x))
    assert relative_error(model(input_ids=ids).logits, wanted) <= 1e-6


def test_b28_every_parameter_comes_back_as_saved(make_decoder, decoder_kind, tmp_path):
    """Constants that no initialisation gives, so that none can pass for what was saved."""
    model = make_decoder(position_embedding_type="lrpe", qk_norm=True, tie_word_embeddings=False)
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.fill_(0.25 * (i + 1))  # exact in bf16 up to 64
    saved = {name: x.clone() for name, x in model.state_dict().items()}
    model.save_pretrained(tmp_path)
    loaders = {
        CAUSAL_VARIANTS[decoder_kind][1]: {"low_cpu_mem_usage": True},
        AutoModelForCausalLM: {"dtype": torch.bfloat16},
    }
    for loader, options in loaders.items():
        loaded, info = loader.from_pretrained(tmp_path, output_loading_info=True, **options)
        assert not any(info.values()), info
        found = loaded.state_dict()
        assert found.keys() == saved.keys()
        for name, x in saved.items():
            assert torch.equal(found[name], x.to(found[name].dtype)), name


@pytest.mark.parametrize("tied", [True, False])
def test_b30_saved_and_loaded_bit_for_bit(make_decoder, decoder_kind, tmp_path, tied):
    model = make_decoder(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        stored = {"lm_head.weight", "model.embed_tokens.weight"} & set(file.keys())
    assert len(stored) == (1 if tied else 2)
    assert type(loaded) is CAUSAL_VARIANTS[decoder_kind][1]
    ids = tokens()
    assert torch.equal(loaded(input_ids=ids).logits, model(input_ids=ids).logits)
    heads = (loaded.lm_head.weight.data_ptr(), loaded.model.embed_tokens.weight.data_ptr())
    assert (heads[0] == heads[1]) is tied
    for name, parameter in model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter), name
    trunk = AutoModel.from_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).is_decoder is trunk.config.is_decoder is True
    wanted = model.model(input_ids=ids).last_hidden_state
    assert torch.equal(trunk(input_ids=ids).last_hidden_state, wanted)
    loaded.train()(input_ids=ids, labels=ids).loss.backward()
    torch.optim.SGD(loaded.parameters(), lr=0.1).step()
    assert torch.equal(loaded.lm_head.weight, loaded.model.embed_tokens.weight) is tied


@pytest.mark.parametrize("sizes", [(100, 105), (105, 90)])
@pytest.mark.parametrize("tied", [True, False])
def test_b31_the_vocabulary_grows_and_shrinks_everywhere(make_decoder, tmp_path, tied, sizes):
    before_it, size = sizes
    model = make_decoder(tie_word_embeddings=tied, vocab_size=before_it)
    kept = min(sizes)
    before = model.lm_head.weight[:kept].clone()
    embedded = model.get_input_embeddings().weight[:kept].clone()
    model.resize_token_embeddings(size)
    assert model.get_input_embeddings().weight.shape[0] == model.lm_head.weight.shape[0] == size
    assert model.config.vocab_size == model.model.config.vocab_size == size
    assert torch.equal(model.lm_head.weight[:kept], before)
    assert tied or torch.equal(model.get_input_embeddings().weight[:kept], embedded)
    ids = torch.randint(3, kept, (2, 8))
    logits = model(input_ids=ids, labels=ids).logits
    assert logits.shape[-1] == size
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert torch.equal(again(input_ids=ids).logits, logits)


@pytest.mark.slow
def test_b42_training_and_generation_without_triton():
    program = """
        import sys
        sys.modules["triton"] = None
        import torch
        from tests.conftest import CAUSAL_VARIANTS, TINY
        assert not torch.cuda.is_available()
        for config, model_class, own in CAUSAL_VARIANTS.values():
            model = model_class(config(**{**TINY, **own}))
            ids = torch.randint(3, 100, (2, 6))
            model(input_ids=ids, labels=ids).loss.backward()
            assert model.generate(ids, max_new_tokens=3, min_new_tokens=3).shape == (2, 9)
        print("done")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=False,
    )  # fmt: skip
    assert run.stdout.strip() == "done", run.stderr
