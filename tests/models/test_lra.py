"""What Transformers may ask of Long Range Arena's classifiers, and what their config refuses."""

import copy
import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import hf_linear_attn as hla
from hf_linear_attn.models import LraConfig, LraForSequenceClassification
from tests.conftest import TINY

PAIRS = {"interaction": "nli", "pooling": "mean"}


def config_of(trunk=None, **fields):
    trunk = hla.LinearTransformerConfig(**{**TINY, "pad_token_id": 0, **(trunk or {})})
    return LraConfig(trunk=trunk, **{"num_labels": 3, **fields})


def model_of(**fields):
    torch.manual_seed(0)
    return LraForSequenceClassification(config_of(**fields)).eval()


@pytest.mark.parametrize("initialization", ["xavier", "torch"])
def test_what_a_checkpoint_lacks_is_drawn_by_the_protocol(tmp_path, initialization):
    trunk = {"hidden_size": 64, "intermediate_size": 128}
    model_of(trunk=trunk, initialization=initialization).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost = ["cls", "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"]
    kept = {name: value.fill_(0.5) for name, value in weights.items() if name not in lost}
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    loaded = LraForSequenceClassification.from_pretrained(tmp_path)
    for name, value in loaded.state_dict().items():
        assert name in lost or torch.equal(value, kept[name])
    cls, tokens, up = (loaded.state_dict()[name] for name in lost)
    xavier = initialization == "xavier"
    assert cls.abs().sum() == 0
    assert tokens[0].abs().sum() == 0
    assert tokens[1:].std().item() == pytest.approx(1.0 if xavier else 0.02, rel=0.1)
    bound = (6 / (64 + 128)) ** 0.5 if xavier else 64**-0.5
    assert up.abs().max().item() == pytest.approx(bound, rel=0.02)


def test_a_head_for_other_classes_is_drawn_and_the_trunk_kept(tmp_path):
    model = model_of(trunk={"intermediate_size": 128})
    with torch.no_grad():
        model.model.embed_tokens.weight[0] = 1.0  # the pad: new it would be zero
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, num_labels=42, ignore_mismatched_sizes=True
    )
    assert loaded.head.out_proj.weight.shape == (42, 128)
    drawn = loaded.head.out_proj.weight.abs().max().item()
    assert drawn == pytest.approx((6 / (128 + 42)) ** 0.5, rel=0.02)
    assert loaded.head.out_proj.bias.abs().sum() == 0
    for name, value in model.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value)


def test_weights_are_drawn_once():
    model = model_of()
    with torch.no_grad():
        model.head.out_proj.weight.fill_(1.0)
    model.post_init()
    assert (model.head.out_proj.weight == 1).all()


def test_a_vocabulary_that_was_resized_is_saved_and_loaded(tmp_path):
    model = model_of()
    model.resize_token_embeddings(110)
    assert model.config.vocab_size == model.model.config.vocab_size == 110
    model.save_pretrained(tmp_path)
    loaded = LraForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(loaded.model.embed_tokens.weight, model.model.embed_tokens.weight)


@pytest.mark.parametrize(("fields", "length"), [({"pooling": "cls"}, 8), (PAIRS, 7)])
def test_hidden_states_and_weights_are_those_of_the_trunk(fields, length):
    model = model_of(**fields)
    shape = (3, 2, 7) if fields is PAIRS else (3, 7)
    ids = torch.randint(1, 100, shape)
    plain = model(ids)
    assert plain.hidden_states is plain.attentions is None
    out = model(ids, output_hidden_states=True, output_attentions=True)
    assert torch.equal(out.logits, plain.logits)
    rows = shape[:-1]
    assert [x.shape for x in out.hidden_states] == 3 * [(*rows, length, 32)]
    assert [x.shape for x in out.attentions] == 2 * [(*rows, 2, length, length)]
    if fields is PAIRS:
        second = model.model(ids[:, 1], output_hidden_states=True).hidden_states
        assert torch.allclose(out.hidden_states[1][:, 1], second[1], atol=1e-6)
    chosen = model(ids, output_hidden_states=[1]).hidden_states
    assert [x is None for x in chosen] == [True, False, True]
    assert torch.equal(chosen[1], out.hidden_states[1])
    model.config.output_hidden_states = True
    assert len(model(ids).hidden_states) == 3
    assert model(ids, return_dict=False)[0].shape == (3, 3)


def test_the_callers_config_is_not_changed():
    config = config_of()
    before, trunk = copy.deepcopy(config).to_dict(), config.trunk
    model = LraForSequenceClassification(config)
    assert config.to_dict() == before
    assert config.trunk is trunk
    assert model.config.trunk is model.model.config


def test_what_others_ask_of_a_config_is_the_trunks():
    config = config_of()
    assert (config.vocab_size, config.hidden_size) == (100, 32)
    config.use_cache = False
    assert config.trunk.use_cache is False
    assert "use_cache" not in vars(config)
    assert not hasattr(LraConfig(), "vocab_size")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"poolin": "mean"}, "LraConfig has no field 'poolin'. Did you mean 'pooling'"),
        ({"head_layers": "x"}, "'head_layers' expected int, got str"),
        ({"head_layers": 0}, "head_layers: got 0, expected 1 or more"),
        ({"head_layers": 8}, r"head_layers: got 8, expected 7 at most.* MLP \(64\)"),
        ({"problem_type": "regression"}, "problem_type is 'regression'.*leave it at None"),
        ({"output_attentions": True}, "output_attentions=True in a config"),
        ({"chunk_size_feed_forward": 1}, "chunk_size_feed_forward=1 is not available"),
        ({"trunk": {"hidden_size": 16}}, "the mapping has no model_type; known: cosformer"),
        ({"trunk": "cosformer"}, "trunk: got 'cosformer', expected the config of an encoder"),
        ({"trunk": {"model_type": "bert"}}, "trunk: got a BertConfig, expected the config"),
        ({"trunk": {"model_type": "cosformer", "hidden_sizes": 3}}, "no field 'hidden_sizes'"),
    ],
)
def test_a_config_that_makes_no_model_is_refused(tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        LraConfig(**{"trunk": config_of().trunk, "num_labels": 3, **fields})
    saved = {**json.loads(config_of().to_json_string(use_diff=False)), **fields}
    (tmp_path / "config.json").write_text(json.dumps(saved))
    with pytest.raises(ValueError, match=message):
        transformers.AutoConfig.from_pretrained(tmp_path)


def test_what_can_be_set_can_be_saved():
    config = config_of()
    with pytest.raises(ValueError, match="LraConfig has no field 'poolin'"):
        config.poolin = "mean"
    config.problem_type = "regression"
    with pytest.raises(ValueError, match="problem_type is 'regression'"):
        LraForSequenceClassification(config)


def test_a_model_of_one_class_and_the_config_of_a_trunk_are_refused(tmp_path):
    with pytest.raises(ValueError, match="num_labels is 1; these models give"):
        model_of(num_labels=1)
    config_of().trunk.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="of type 'linear_transformer'; expected 'linear_attn_lra'"
    ):
        LraConfig.from_pretrained(tmp_path)


def test_damaged_and_stray_weights_are_refused(tmp_path):
    model_of().save_pretrained(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:1000])
    with pytest.raises(ValueError, match="they are damaged or cut off"):
        LraForSequenceClassification.from_pretrained(tmp_path)
    index = {"metadata": {}, "weight_map": {"cls": "../model.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"expected the names of \.safetensors files beside"):
        LraForSequenceClassification.from_pretrained(tmp_path)
