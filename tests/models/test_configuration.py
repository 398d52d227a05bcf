"""Configs: a mistake is one clear error, before anything is built."""

import json
import logging

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

import hf_linear_attn as hla
from hf_linear_attn.attention import ATTENTION, LinearTransformerAttention
from hf_linear_attn.models import CONFIG_CLASSES, LraConfig
from tests.conftest import TINY, VARIANTS


def test_defaults_are_roberta_base_s_shape(variant):
    config = VARIANTS[variant][0]().settle(is_decoder=False)
    shape = (config.vocab_size, config.hidden_size, config.num_hidden_layers, config.head_dim)
    assert shape == (50265, 768, 12, 64)
    assert (config.norm_position, config.embedding_norm, config.final_norm) == ("post", True, False)
    assert config.max_position_embeddings == 512


@pytest.mark.parametrize(
    ("field", "nearest"),
    [
        ("hiden_size", "hidden_size"),
        ("num_attention_head", "num_attention_heads"),
        ("cos_horizn", "cos_horizon"),
        ("max_position_embedings", "max_position_embeddings"),
    ],
)
def test_an_unknown_field_gets_the_nearest_name(field, nearest):
    with pytest.raises(ValueError, match=f"no field '{field}'. Did you mean '{nearest}'"):
        hla.CosformerConfig(**{field: 4})


def test_fields_of_another_variant_are_unknown():
    with pytest.raises(ValueError, match="LinearTransformerConfig has no field 'cos_horizon'"):
        hla.LinearTransformerConfig(cos_horizon=4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 30, "num_attention_heads": 4}, "does not divide hidden_size"),
        ({"num_key_value_heads": 3}, "does not divide num_attention_heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "above 0"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers"),
        ({"rope_parameters": 3}, "rope_parameters"),
        ({"id2label": 3}, "id2label"),
        ({"id2label": {"first": "a"}}, "id2label has the key 'first'; expected numbers"),
        ({"num_labels": "3"}, "num_labels is '3'; expected a number"),
        ({"num_labels": -1}, "num_labels is -1"),
        ({"torch_dtype": "gelu"}, "torch_dtype is 'gelu'; expected one of float64"),
        ({"return_dict": "yes"}, "return_dict"),
        ({"problem_type": "choice"}, "problem_type"),
        ({"dtype": "float15"}, "dtype is 'float15'; expected one of float64"),
        ({"hidden_dropout_prob": 1.5}, r"\[0, 1\)"),
        ({"norm_type": "batchnorm"}, "norm_type"),
        ({"hidden_act": "gelo"}, "Did you mean 'gelu"),
        ({"glu_act": "silu", "mlp_type": "mlp"}, "mlp_type"),
        ({"layer_attention": "cosfromer"}, "Did you mean 'cosformer'"),
        ({"layer_attention": ["softmax"]}, "names 1 layers, num_hidden_layers is 2"),
        ({"layer_attention": ["softmax"] * 3}, "names 3 layers"),
        ({"layer_attention": []}, "names 0 layers"),
        ({"layer_attention": ""}, "names no mechanism"),
        ({"position_embedding_type": "rope", "rope_parameters": {"rope_theta": 0.0}}, "above 0"),
        ({"position_embedding_type": "rope", "head_dim": 7}, "must be even"),
        ({"position_embedding_type": "sinusoidal", "hidden_size": 33, "head_dim": 8}, "even"),
        ({"norm_eps": float("inf")}, "above 0"),
        ({"attention_eps": float("nan")}, "above 0"),
        ({"eos_token_id": [2, 1000]}, "eos_token_id"),
        ({"bos_token_id": -3}, "bos_token_id"),
        ({"rope_parameters": {"rope_theta": 1.0}}, "position_embedding_type"),
        ({"position_embedding_type": "rope", "rope_parameters": {"rope_type": "yarn"}}, "accepted"),
        ({"pad_token_id": 100}, "pad_token_id"),
        ({"chunk_size_feed_forward": 4}, "chunk_size_feed_forward"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"attention_kwargs": {"softmax": {}}}, "softmax"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"logit_scale": 0}, "logit_scale"),
        ({"hidden_size": 2**31}, "hidden_size is 2147483648; it must be 2147483647 at most"),
        ({"vocab_size": 10**30}, "vocab_size is 10+; it must be"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; it must be 10000 at most"),
        ({"type_vocab_size": 2**31}, "type_vocab_size"),
        ({"initializer_range": 1e39}, r"initializer_range is 1e\+39; it must be"),
        ({"hidden_size": True}, "hidden_size"),
        ({"layer_attention": [3, 3]}, r"'layer_attention' with value \[3, 3\]"),
        ({"attention_kwargs": {"softmax": 3}}, "attention_kwargs"),
        ({"attention_kwargs": {3: {}}}, "attention_kwargs"),
        ({"rope_parameters": "fast"}, "rope_parameters is 'fast'; it must be a mapping or None"),
        ({"position_embedding_type": "rope", "rope_parameters": {"rope_type": []}}, "accepted"),
    ],
)
def test_what_a_config_refuses(variant, fields, message):
    if fields.get("attention_kwargs") == {"softmax": {}} and variant != "softmax":
        message = "no layer uses it"
    with pytest.raises(ValueError, match=message):
        VARIANTS[variant][0](**{**TINY, **fields})


def test_a_field_set_later_is_checked_when_a_model_is_built(make_config, variant):
    config = make_config()
    config.layer_attention = ["softmax"] * 5
    with pytest.raises(ValueError, match="names 5 layers"):
        VARIANTS[variant][1](config)


def test_dropout_on_weights_that_do_not_exist_is_refused(variant):
    fields = {**TINY, "attention_probs_dropout_prob": 0.1}
    if variant in ("softmax", "transnormer"):
        VARIANTS[variant][0](**fields)
    else:
        with pytest.raises(ValueError, match="no layer has attention weights to drop"):
            VARIANTS[variant][0](**fields)


def test_transnormer_without_block_layers_has_no_weights_to_drop():
    with pytest.raises(ValueError, match="no layer has attention weights to drop"):
        hla.TransNormerConfig(**TINY, num_local_layers=0, attention_probs_dropout_prob=0.1)


@pytest.mark.parametrize(("given", "local"), [(None, 2), (0, 0), (5, 5), (1, 1)])
def test_transnormer_has_block_attention_in_its_first_layers(given, local):
    config = hla.TransNormerConfig(**{**TINY, "num_hidden_layers": 5}, num_local_layers=given)
    names = ["transnormer_diag"] * local + ["transnormer_norm"] * (5 - local)
    assert config.attention_names == names
    settled = config.settle(is_decoder=False)
    assert settled.layer_attention == names
    # What was settled is saved, and loads.
    again = hla.TransNormerConfig.from_dict(settled.to_dict())
    assert again.attention_names == names


def test_transnormer_s_own_fields_reach_both_of_its_mechanisms():
    config = hla.TransNormerConfig(**TINY, transnormer_version="t1", block_size=8)
    assert config.attention_settings("transnormer_diag")["block_size"] == 8
    for name in ("transnormer_diag", "transnormer_norm"):
        assert config.attention_settings(name)["transnormer_version"] == "t1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_local_layers": 3}, "between 0 and num_hidden_layers"),
        ({"num_local_layers": -1}, "between 0 and num_hidden_layers"),
        ({"num_local_layers": 1, "layer_attention": "transnormer_norm"}, "contradict each other"),
        ({"transnormer_version": "t3"}, "transnormer_version"),
        ({"block_size": 0}, "block_size must be at least 1"),
        ({"attention_kwargs": {"transnormer_diag": {"block_size": 8}}}, "set its fields directly"),
    ],
)
def test_what_a_transnormer_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        hla.TransNormerConfig(**TINY, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_landmarks": 0}, "num_landmarks"),
        ({"conv_kernel_size": 4}, "odd number"),
        ({"pinv_iterations": 0}, "pinv_iterations"),
    ],
)
def test_what_a_nystrom_config_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        hla.NystromConfig(**TINY, **fields)


def test_own_fields_reach_the_own_mechanism_only():
    config = hla.CosformerConfig(
        **TINY, feature_map="elu_plus_one", layer_attention=["cosformer", "linear_transformer"]
    )
    assert config.attention_settings("cosformer")["feature_map"] == "elu_plus_one"
    assert "feature_map" not in config.attention_settings("linear_transformer")


def test_attention_kwargs_reach_the_others():
    config = hla.SoftmaxConfig(
        **TINY, layer_attention=["softmax", "cosformer"],
        attention_kwargs={"cosformer": {"cos_horizon": 8}},
    )  # fmt: skip
    model = hla.SoftmaxModel(config)
    assert model.layers[1].self_attn.mechanism.cos_horizon == 8
    with pytest.raises(ValueError, match="Did you mean 'cos_horizon'"):
        hla.SoftmaxConfig(
            **TINY, layer_attention=["softmax", "cosformer"],
            attention_kwargs={"cosformer": {"cos_horizn": 8}},
        )  # fmt: skip
    with pytest.raises(ValueError, match="set its fields directly"):
        hla.CosformerConfig(**TINY, attention_kwargs={"cosformer": {"cos_horizon": 8}})


def test_auto_classes_know_the_variants(variant):
    config_class, model_class, mlm_class = VARIANTS[variant]
    config = AutoConfig.for_model(config_class.model_type, **TINY)
    assert type(config) is config_class
    assert type(AutoModel.from_config(config)) is model_class
    assert type(AutoModelForMaskedLM.from_config(config)) is mlm_class
    assert CONFIG_CLASSES[variant] is config_class


def test_labels_and_dtypes_pass_through():
    config = hla.CosformerConfig(**TINY, num_labels=3, dtype="bfloat16")
    assert config.num_labels == 3
    assert config.dtype == torch.bfloat16
    assert hla.CosformerConfig.from_dict(config.to_dict()).dtype == torch.bfloat16


def test_an_unknown_field_raises_however_it_comes(make_config, variant, tmp_path):
    config = make_config()
    config.save_pretrained(tmp_path)
    config_class = VARIANTS[variant][0]
    for load in (config_class.from_pretrained, AutoConfig.from_pretrained):
        with pytest.raises(ValueError, match="Did you mean 'hidden_size'"):
            load(tmp_path, hiden_size=3)
        assert load(tmp_path, norm_eps=0.5, revision="main", token=None).norm_eps == 0.5
        with pytest.raises(ValueError, match="hidden_dropout_prob"):
            load(tmp_path, hidden_dropout_prob=1.5)
    # What can be set can be saved, and what was saved must load.
    with pytest.raises(ValueError, match="has no field 'my_note'"):
        config.my_note = "x"


def test_the_base_config_needs_a_mechanism():
    with pytest.raises(ValueError, match="use the config of a variant"):
        hla.LinearAttnConfig(**TINY)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("nystrom", {"num_landmarks": 2.5}, "num_landmarks"),
        ("nystrom", {"num_landmarks": "4"}, "num_landmarks"),
        ("nystrom", {"pinv_iterations": 2.5}, "pinv_iterations"),
        ("nystrom", {"conv_kernel_size": 3.0}, "conv_kernel_size"),
        ("nystrom", {"num_attention_heads": 7, "conv_kernel_size": 5}, "num_attention_heads"),
        ("transnormer_diag", {"block_size": 4.5}, "block_size"),
        ("transnormer_norm", {"chunk_size": 2.5}, "chunk_size"),
        ("transnormer_norm", {"chunk_sise": 2}, "Did you mean 'chunk_size'"),
    ],
)
def test_attention_kwargs_are_checked_like_fields(name, fields, message):
    with pytest.raises(ValueError, match=message):
        hla.LinearTransformerConfig(
            **TINY, layer_attention=["linear_transformer", name], attention_kwargs={name: fields}
        )


def test_a_mechanism_of_one_s_own_checks_its_own_values(monkeypatch, tmp_path):
    """A tuple comes back from JSON as a list."""

    class Mine(LinearTransformerAttention):
        def __init__(self, *, sizes: tuple[int, ...] = (1,), scale: float | None = None, **kwargs):
            super().__init__(**kwargs)

    monkeypatch.setitem(ATTENTION, "mine", Mine)
    config = hla.LinearTransformerConfig(
        **TINY, layer_attention="mine", attention_kwargs={"mine": {"sizes": (1, 2), "scale": 1}}
    )
    config.save_pretrained(tmp_path)
    again = hla.LinearTransformerConfig.from_pretrained(tmp_path)
    assert again.attention_settings("mine")["sizes"] == [1, 2]
    with pytest.raises(ValueError, match="scale"):
        hla.LinearTransformerConfig(
            **TINY, layer_attention="mine", attention_kwargs={"mine": {"scale": "1"}}
        )


def test_attention_kwargs_take_whole_numbers_for_floats():
    config = hla.CosformerConfig(
        **TINY, layer_attention=["cosformer", "transnormer_norm"],
        attention_kwargs={"transnormer_norm": {"attention_eps": 1}},
    )  # fmt: skip
    assert config.attention_settings("transnormer_norm")["attention_eps"] == 1


@pytest.mark.parametrize(
    ("config_class", "fields", "word"),
    [
        (hla.NystromConfig, {"num_landmarks": 32}, "num_landmarks"),
        (hla.TransNormerConfig, {"block_size": 32}, "block_size"),
    ],
)
def test_b45_a_config_in_which_nothing_is_linear_says_so(config_class, fields, word, caplog):
    transformers_logger = logging.getLogger("transformers")
    transformers_logger.addHandler(caplog.handler)
    try:
        config_class(**TINY, **fields).settle()
        assert f"{word} (32) is not below max_position_embeddings (32)" in caplog.text
        caplog.clear()
        config_class(**TINY, **dict.fromkeys(fields, 31)).settle()
        # A config that only stands there to be compared says nothing.
        config_class(**TINY, **dict.fromkeys(fields, 33))
        assert caplog.text == ""
    finally:
        transformers_logger.removeHandler(caplog.handler)


def test_b16_a_causal_nystrom_model_is_refused_with_the_reason():
    from hf_linear_attn.models import NystromForCausalLM

    for build in (NystromForCausalLM, transformers.AutoModelForCausalLM.from_config):
        with pytest.raises(ValueError, match="no causal form: landmarks are means over all tokens"):
            build(hla.NystromConfig(**TINY))


def test_a_dtype_inside_of_another_config_is_written_as_its_name(tmp_path):
    trunk = hla.CosformerConfig(**TINY, dtype=torch.bfloat16)
    config = LraConfig(trunk=trunk, num_labels=3, dtype=torch.float16)
    for text in (config.to_json_string(), json.dumps(config.to_dict())):
        assert json.loads(text)["dtype"] == "float16"
        assert json.loads(text)["trunk"]["dtype"] == "bfloat16"
    config.save_pretrained(tmp_path)
    again = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (again.dtype, again.encoder.dtype) == (torch.float16, torch.bfloat16)
