"""What a stock model may not be given, each refused by its name and before it computes."""

import logging
from types import SimpleNamespace

import pytest
import torch
import transformers as hf

from hf_linear_attn import LinearStateCache
from hf_linear_attn.integrations.attention_interface import stock_attention
from hf_linear_attn.integrations.stock_fields import STOCK_NAMES
from hf_linear_attn.integrations.stock_model_checks import config_tree
from hf_linear_attn.integrations.stock_modules import rotates
from hf_linear_attn.integrations.stock_visible import refuse_visible
from tests.integrations.stock_models import (
    GROUPED,
    KERNELIZED,
    NO_DROPOUT,
    SIZES,
    stock_config,
    stock_model,
    tokens,
)

SMALL = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1,
         "intermediate_size": 40, "vocab_size": 60}  # fmt: skip
DEAF = {
    "nystromformer": (hf.NystromformerConfig, hf.NystromformerForMaskedLM),
    "deberta-v2": (hf.DebertaV2Config, hf.DebertaV2ForMaskedLM),
    "falcon": (hf.FalconConfig, hf.FalconForCausalLM),
    "mamba": (hf.MambaConfig, hf.MambaForCausalLM),
}


@pytest.fixture
def warnings(caplog):
    """What Transformers' loggers said; one-time warnings are told again."""
    from transformers.utils.logging import get_logger

    type(get_logger("transformers")).warning_once.cache_clear()
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    yield lambda: [record.getMessage() for record in caplog.records]
    logger.removeHandler(caplog.handler)


@pytest.mark.parametrize("kind", list(DEAF))
def test_models_that_never_look_the_name_up(kind, tmp_path):
    config_class, model_class = DEAF[kind]
    config = config_class(**SMALL)
    with pytest.raises(ValueError, match="never looks the name up"):
        model_class._from_config(config, attn_implementation="cosformer")
    model = model_class(config_class(**SMALL))
    before = model.config._attn_implementation
    for asked in ("cosformer", {"": "cosformer"}):
        with pytest.raises(ValueError, match="never looks the name up"):
            model.set_attn_implementation(asked)
    assert model.config._attn_implementation == before
    model(tokens(1, 8))
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="never looks the name up"):
        model_class.from_pretrained(tmp_path, attn_implementation="linear_transformer")
    with pytest.raises(ValueError, match="never looks the name up"):
        hf.AutoModel.from_pretrained(tmp_path, attn_implementation="nystrom")


def test_an_attention_that_stays_what_it_is_is_named(warnings):
    config = hf.SiglipVisionConfig(
        hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=40,
        image_size=16, patch_size=8,
    )  # fmt: skip
    config.cos_horizon = 16
    hf.SiglipVisionModel._from_config(config, attn_implementation="cosformer")
    hf.SiglipForImageClassification._from_config(
        hf.SiglipConfig(vision_config=config.to_dict() | {"cos_horizon": 16}),
        attn_implementation={"vision_config": "cosformer"},
    )
    assert sum("does not reach MultiheadAttention" in said for said in warnings()) == 1


@pytest.mark.parametrize(
    ("config", "model", "converted"),
    [
        (hf.LlamaConfig, hf.LlamaForCausalLM, "ForCausalLM"),
        (hf.Qwen3Config, hf.Qwen3ForCausalLM, "ForCausalLM"),
        (hf.MixtralConfig, hf.MixtralForCausalLM, None),
        (hf.ModernBertConfig, hf.ModernBertForMaskedLM, None),
        (hf.GPTNeoXConfig, hf.GPTNeoXForCausalLM, None),
    ],
)
def test_maps_of_rotated_vectors(config, model, converted):
    sizes = SMALL | {"pad_token_id": 1}
    if config is hf.ModernBertConfig:
        sizes["layer_types"] = ["full_attention"]
    said = "RoPE.*Mechanisms that fit: 'transnormer_diag'"
    if config is hf.ModernBertConfig:
        said += ", 'nystrom'"
    for name, head in zip(
        KERNELIZED, ("Cosformer", "LinearTransformer", "TransNormer"), strict=True
    ):
        # Conversion is offered where there is one, with the class that it gives.
        way = (
            r"\.$"
            if converted is None
            else rf".*: {head}{converted}\.from_pretrained\(checkpoint\)"
        )
        with pytest.raises(ValueError, match=said + way):
            model._from_config(config(**sizes), attn_implementation=name)
    fitting = model._from_config(config(**sizes), attn_implementation="transnormer_diag")
    with pytest.raises(ValueError, match="RoPE"):
        fitting.set_attn_implementation("cosformer")
    assert fitting.config._attn_implementation == "transnormer_diag"
    # Also where nobody asked Transformers.
    fitting.config._attn_implementation = "cosformer"
    with pytest.raises(ValueError, match="RoPE"):
        fitting(tokens(1, 5))


def test_rotations_of_other_names():
    """GPT-J and ESM have no rope_parameters, the code says it; in others the config does."""
    config = hf.GPTJConfig(vocab_size=60, n_embd=32, n_layer=1, n_head=2, rotary_dim=8)
    with pytest.raises(ValueError, match="RoPE"):
        hf.GPTJForCausalLM._from_config(config, attn_implementation="cosformer")
    hidden = torch.nn.Linear(2, 2)
    assert not rotates(hidden)
    for config in (hf.LlamaConfig(**SMALL), SimpleNamespace(rope_theta=1e4)):
        hidden.config = config
        assert rotates(hidden)
    for kind in ("rotary", "absolute"):
        config = hf.EsmConfig(**SIZES, position_embedding_type=kind, mask_token_id=5)
        if kind == "rotary":
            with pytest.raises(ValueError, match="RoPE"):
                hf.EsmModel._from_config(config, attn_implementation="cosformer")
        else:
            hf.EsmModel._from_config(config, attn_implementation="cosformer")


class Named(torch.nn.Module):
    def forward(self, x):
        return self.property_of(x)


class Turning(torch.nn.Module):
    def forward(self, x):
        return apply_mrope(x)  # noqa: F821


class Turned(torch.nn.Module):
    def forward(self, x):
        return self.RoPE(x)


def test_names_that_only_hold_the_letters_of_a_rotation():
    assert not rotates(Named())
    assert rotates(Turning())
    assert rotates(Turned())


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_nystrom_has_no_causal_form(kind):
    with pytest.raises(ValueError, match=r"'nystrom' in .*no causal form"):
        stock_model(kind, "nystrom")


@pytest.mark.parametrize("name", ["nystrom", "transnormer_diag"])
def test_no_form_for_cross_attention(name):
    config = hf.BertConfig(**SIZES, **NO_DROPOUT, is_decoder=True, add_cross_attention=True)
    config.attention_kwargs = None
    if name == "nystrom":
        with pytest.raises(ValueError, match="no causal form"):
            hf.BertModel._from_config(config, attn_implementation=name)
        return
    model = hf.BertModel._from_config(config, attn_implementation=name).eval()
    for length in (5, 7):
        with pytest.raises(ValueError, match="no form for cross-attention"):
            model(tokens(1, 5), encoder_hidden_states=torch.randn(1, length, 32))


def test_a_horizon_of_each_rows_length_has_no_form_for_decoders():
    with pytest.raises(ValueError, match="cos_horizon='length'"):
        stock_model("gpt2", "cosformer", cos_horizon="length")
    stock_model("bert", "cosformer", cos_horizon="length")(tokens(2, 9))


def unseen(model_class, config, name):
    """A model that was not looked through: what its layers ask for is refused as they run."""
    config.cos_horizon = 32
    model = model_class._from_config(config, attn_implementation="eager")
    for part in config_tree(model.config):
        part._attn_implementation_internal = name
    return model.eval()


def _table():
    sizes = SIZES | GROUPED | {"num_hidden_layers": 1}
    full = {"layer_types": ["full_attention"]}
    return {
        "window of the config": (
            hf.MixtralForCausalLM, hf.MixtralConfig(**sizes, sliding_window=4), "sliding_window"),
        "window of the default": (
            hf.MistralForCausalLM, hf.MistralConfig(**sizes), "sliding_window"),
        "window of a layer": (
            hf.ModernBertModel,
            hf.ModernBertConfig(
                **SIZES, cls_token_id=2, sep_token_id=3, local_attention=4,
                layer_types=["full_attention", "sliding_attention"]),
            "sliding_window"),
        "soft cap": (hf.Gemma2ForCausalLM, hf.Gemma2Config(**sizes, **full), "softcap"),
        "sinks": (
            hf.GptOssForCausalLM, hf.GptOssConfig(**sizes, **full, num_local_experts=2),
            "sinks|s_aux"),
        "relative positions": (
            hf.T5EncoderModel,
            hf.T5Config(vocab_size=60, d_model=32, d_kv=16, d_ff=40, num_layers=1, num_heads=2),
            "position_bias"),
    }  # fmt: skip


@pytest.mark.parametrize("what", list(_table()))
def test_what_a_layer_asks_for_is_refused_when_it_is_built_and_when_it_runs(what):
    model_class, config, said = _table()[what]
    config.cos_horizon = 32
    name = "cosformer" if model_class is hf.T5EncoderModel else "transnormer_diag"
    with pytest.raises(ValueError, match=f"cannot honour '({said})'"):
        model_class._from_config(config, attn_implementation=name)
    with pytest.raises(ValueError, match=f"cannot honour '({said})'"):
        unseen(model_class, _table()[what][1], name)(tokens(1, 9))


@pytest.mark.parametrize(
    "field", ["use_relative_position_bias", "use_shared_relative_position_bias"]
)
def test_tables_of_relative_positions_of_images(field):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 40, "image_size": 16, "patch_size": 4}  # fmt: skip
    swin = hf.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[1], num_heads=[2], window_size=4
    )
    for model_class, config in (
        (hf.BeitModel, hf.BeitConfig(**sizes, **{field: True})),
        (hf.SwinModel, swin),
    ):
        config.cos_horizon = 64
        with pytest.raises(ValueError, match=r"cannot honour 'position_bias'.*relative positions"):
            model_class._from_config(config, attn_implementation="cosformer")


def test_alibi_is_refused_by_that_name():
    for model_class, config in (
        (hf.BloomForCausalLM, hf.BloomConfig(vocab_size=60, hidden_size=32, n_layer=1, n_head=2)),
        (hf.MptForCausalLM, hf.MptConfig(d_model=32, n_heads=2, n_layers=1, vocab_size=60)),
        (hf.FalconForCausalLM, hf.FalconConfig(**SMALL, alibi=True)),
    ):
        config.cos_horizon = 32
        with pytest.raises(ValueError, match=r"never looks the name up .*ALiBi"):
            model_class._from_config(config, attn_implementation="cosformer")
    with pytest.raises(ValueError, match="attention of its own, or none"):
        hf.FalconForCausalLM._from_config(hf.FalconConfig(**SMALL), attn_implementation="cosformer")
    module = stock_model("gpt2", "cosformer").transformer.h[0].attn
    module.alibi = True
    with pytest.raises(ValueError, match="cannot honour 'alibi'"):
        refuse_visible("cosformer", module)


def test_an_unknown_keyword_is_refused_too():
    model = stock_model("bert", "cosformer")
    with pytest.raises(ValueError, match=r"'head_gate'.*does not know"):
        model(tokens(1, 5), head_gate=torch.ones(2))


def test_scaling():
    """cosFormer does not see it, softmax-type attention honours it, 1 + elu refuses it."""
    ids = tokens(1, 9)
    changed = {"scale_attn_weights": False}
    with torch.no_grad():
        logits = {
            name: [stock_model("gpt2", name, **f)(ids).logits for f in ({}, changed)]
            for name in ("cosformer", "transnormer_diag")
        }
        diagonal = stock_model("gpt2", "transnormer_diag")
        for block in diagonal.transformer.h:
            block.attn.c_attn.weight[:, :32] *= 4
            block.attn.c_attn.bias[:32] *= 4
        by_weights = diagonal(ids).logits
    torch.testing.assert_close(*logits["cosformer"], atol=0, rtol=0)
    torch.testing.assert_close(logits["transnormer_diag"][1], by_weights, atol=1e-4, rtol=1e-4)
    for name in ("linear_transformer", "transnormer_norm"):
        model = stock_model("gpt2", name, **changed)
        with pytest.raises(ValueError, match=r"scaling=1\.0 of GPT2Attention"):
            model(ids)
    # A negative one would turn the sign of what ReLU lets through.
    module, x = stock_model("gpt2", "cosformer").transformer.h[0].attn, torch.randn(1, 2, 5, 16)
    stock_attention("cosformer", module, x, x, x, None, scaling=0.1)
    for scaling in (-0.25, 0.0):
        with pytest.raises(ValueError, match="no scale that scaling="):
            stock_attention("cosformer", module, x, x, x, None, scaling=scaling)


def test_dropout_on_weights_that_do_not_exist_is_said_once(warnings):
    model = stock_model("gpt2", "cosformer", attn_pdrop=0.3).train()
    for _ in range(2):
        model(tokens(1, 9))
    assert sum("applies no attention dropout" in said for said in warnings()) == 1
    model = stock_model("gpt2", "transnormer_diag", attn_pdrop=0.5).train()
    found = [model(tokens(1, 9)).logits for _ in range(2)]
    assert (found[0] - found[1]).abs().max() > 1e-3
    model.eval()
    torch.testing.assert_close(*[model(tokens(1, 9)).logits for _ in range(2)], atol=0, rtol=0)


def test_a_long_horizon_nobody_chose_is_said_once(warnings):
    told = []
    for length, horizon in ((9, 4096), (1025, None), (9, None), (9, None)):
        fields = {"max_position_embeddings": 4096, "cos_horizon": horizon}
        stock_model("gpt2", "cosformer", **fields)(tokens(1, length))
        told.append(sum("distance hardly counts" in said for said in warnings()))
    assert told == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nystrom": {"num_landmark": 4}}, "Did you mean 'num_landmarks'"),
        ({"nystrom": {"num_landmarks": "4"}}, "num_landmarks"),
        ({"nystrom": {"num_landmarks": 0}}, "from 1 on"),
        ({"nystrom": {"num_landmarks": [4]}}, "numbers and words"),
        ({"nystrom": {"conv_kernel_size": 5}}, "num_attention_heads|no place for them"),
        ({"nystroem": {"num_landmarks": 4}}, "Did you mean 'nystrom'"),
        ({"softmax": {}}, "no stock model runs"),
        ({"nystrom": 4}, "attention_kwargs is"),
        ({"nystrom": {"num_attention_heads": 4}}, "which is the model's"),
    ],
)
def test_fields(fields, said):
    with pytest.raises(ValueError, match=said):
        stock_model("bert", "nystrom", attention_kwargs=fields)


def test_fields_of_a_blocks_dropout_and_two_horizons():
    fields = {"transnormer_diag": {"attention_probs_dropout_prob": 0.1}}
    with pytest.raises(ValueError, match="brings its own attention dropout"):
        stock_model("bert", "transnormer_diag", attention_kwargs=fields)
    fields = {"cosformer": {"cos_horizon": 20}}
    with pytest.raises(ValueError, match="give one of them"):
        stock_model("bert", "cosformer", attention_kwargs=fields)
    stock_model("bert", "cosformer", attention_kwargs=fields, cos_horizon=None)


def test_a_config_without_a_horizon():
    with pytest.raises(ValueError, match="ViTConfig has no max_position_embeddings"):
        stock_model("vit", "cosformer", cos_horizon=None)


def test_the_lines_that_are_said_to_set_a_horizon_do(tmp_path):
    path = str(tmp_path)
    hf.ViTModel(stock_config("vit", cos_horizon=None)).save_pretrained(path)
    with pytest.raises(ValueError, match="needs a horizon") as caught:
        hf.AutoModel.from_pretrained(path, attn_implementation="cosformer")
    lines = "\n".join(line.strip() for line in str(caught.value).splitlines()[1:])
    known = {"AutoConfig": hf.AutoConfig, "AutoModel": hf.AutoModel, "path": path, "N": 17}
    exec(lines, known)
    assert known["model"].config.cos_horizon == 17
    assert known["model"].config._attn_implementation == "cosformer"


def test_a_position_outside_the_horizon():
    model = stock_model("gpt2", "cosformer", cos_horizon=8)
    with pytest.raises(ValueError, match="position 8 is outside cosFormer's horizon"):
        model(tokens(1, 9))


def test_a_misspelt_name():
    with pytest.raises(ValueError, match="Did you mean 'cosformer'"):
        stock_model("bert", "cosfromer")
    model = stock_model("bert", "cosformer")
    with pytest.raises(ValueError, match="Did you mean 'nystrom'"):
        model.set_attn_implementation("nystroem")
    assert model.config._attn_implementation == "cosformer"
    with pytest.raises(ValueError, match="is not supported"):
        model.set_attn_implementation("something_else")


def test_names_by_part_and_what_is_saved(tmp_path):
    model = hf.AutoModelForMaskedLM.from_config(
        stock_config("bert"), attn_implementation={"": "cosformer"}
    ).eval()
    assert model.config._attn_implementation == "cosformer"
    ids = tokens(2, 9)
    expected = model(ids).logits
    model.save_pretrained(tmp_path)
    again = hf.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    # Transformers never saves the implementation: it has to be named again.
    assert again.config._attn_implementation not in STOCK_NAMES
    assert (again(ids).logits - expected).abs().max() > 1e-2
    again = hf.AutoModelForMaskedLM.from_pretrained(tmp_path, attn_implementation="cosformer")
    torch.testing.assert_close(again.eval()(ids).logits, expected, atol=0, rtol=0)
    assert again.config.cos_horizon == 24


def test_other_models_are_left_alone():
    """The look into a model does nothing where none of our names is asked for."""
    model = hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(**SMALL))
    model.set_attn_implementation("sdpa")
    model(tokens(1, 5))


def test_a_model_that_attends_twice_to_one_update_of_the_cache():
    config = hf.DiffLlamaConfig(**SIZES | GROUPED)
    config.attention_kwargs = {"transnormer_diag": {"block_size": 4}}
    model = hf.DiffLlamaForCausalLM._from_config(config, attn_implementation="transnormer_diag")
    ids = tokens(2, 11)
    with pytest.raises(ValueError, match="more than once for the keys of one update"):
        model.eval()(ids, cache=LinearStateCache(model.config))
    with torch.no_grad():
        plain = model(ids, use_cache=False).logits
        torch.testing.assert_close(model(ids).logits, plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["transnormer_diag", "nystrom"])
def test_a_model_that_chooses_pairs_by_a_mask_of_its_own(name):
    with pytest.raises(ValueError, match="'attention_mask', with which DogeAttention"):
        hf.DogeForCausalLM._from_config(hf.DogeConfig(**SIZES | GROUPED), attn_implementation=name)


def test_encoder_decoders_are_refused_when_they_are_built():
    config = stock_config("bart")
    with pytest.raises(ValueError, match="no form for cross-attention"):
        hf.BartModel._from_config(config, attn_implementation="transnormer_diag")
    # Its decoder alone has such modules and never calls them.
    alone = hf.BartForCausalLM._from_config(config, attn_implementation="transnormer_diag")
    ids = tokens(2, 7)
    assert alone.eval()(ids).logits.isfinite().all()


def test_a_cache_of_states_is_for_models_that_attend_in_every_layer():
    config = stock_config("llama")
    config._attn_implementation = "transnormer_diag"
    config.layer_types = ["full_attention", "conv"]
    with pytest.raises(ValueError, match=r"layers of another kind \(conv\)"):
        LinearStateCache(config)


def test_a_decoder_whose_self_attention_does_not_say_that_it_is_causal():
    config = hf.NllbMoeConfig(
        vocab_size=60, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=40, num_experts=2,
        expert_capacity=64, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
    )  # fmt: skip
    config.cos_horizon = 32
    model = hf.NllbMoeModel._from_config(config, attn_implementation="cosformer").eval()
    ids, text = tokens(2, 9), tokens(2, 7, seed=3)
    with torch.no_grad():
        whole = model(input_ids=ids, decoder_input_ids=text).last_hidden_state
        part = model(input_ids=ids, decoder_input_ids=text[:, :5]).last_hidden_state
    torch.testing.assert_close(whole[:, :5], part, rtol=0, atol=1e-5)
