"""The model of a recipe: fields, checks, saved models."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, RobertaConfig, RobertaForMaskedLM

import hf_linear_attn as hla
from hf_linear_attn.training import model_setup, saved_model_setup
from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.model_setup import (
    attentions_for,
    build_config,
    build_model,
    check_block_size,
)
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("saved")
    args = ModelArguments(attention="softmax", model=SMALL)
    build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("attention", ["cosformer", "linear_transformer", "softmax"])
def test_each_attention_gives_its_model_with_the_tokenizers_ids(tokenizer, attention):
    args = ModelArguments(attention=attention, model=SMALL)
    model = build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM)
    assert attention in type(model).__name__.lower() or "LinearTransformer" in str(type(model))
    assert model.config.vocab_size == 261
    assert (model.config.bos_token_id, model.config.pad_token_id) == (0, 1)
    assert model.config.eos_token_id == 2
    assert model.config.hidden_size == 32


def test_the_ids_are_those_of_another_tokenizer_too():
    other = load_or_train_tokenizer(None, ["some text"], 261, 64)
    other.pad_token, other.bos_token, other.eos_token = "<unk>", "</s>", "<s>"
    config = build_config(ModelArguments(model=SMALL), other)
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (3, 2, 0)


def test_overrides_go_over_the_yaml_fields(tokenizer):
    args = ModelArguments(
        model=SMALL,
        config_overrides="hidden_size=48,layer_attention=[cosformer, softmax],norm_eps=0.1",
    )
    config = build_config(args, tokenizer)
    assert config.hidden_size == 48
    assert config.layer_attention == ["cosformer", "softmax"]
    assert config.norm_eps == 0.1
    assert config.num_hidden_layers == 2


def test_new_weights_come_from_the_seed(tokenizer):
    args = ModelArguments(model=SMALL)
    models = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        models.append(
            build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM).state_dict()
        )
    name = "model.embed_tokens.weight"
    assert torch.equal(models[0][name], models[1][name])
    assert not torch.equal(models[0][name], models[2][name])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention": "cosfomer"}, "got 'cosfomer', expected one of .*did you mean 'cosformer'"),
        ({"config_overrides": "num_attention_heads=5"}, r"\(5\) does not divide hidden_size"),
        ({"config_overrides": "layer_attention=[cosformer]"}, "1 layers, num_hidden_layers is 2"),
        ({"config_overrides": "hiden_size=64"}, "hiden_size.*hidden_size"),
        ({"config_overrides": "pad_token_id=0"}, "pad_token_id comes from the tokenizer"),
        ({"config_overrides": "vocab_size"}, "expected field=value"),
    ],
)
def test_mistakes_show_before_there_is_a_tokenizer(fields, message):
    with pytest.raises(ValueError, match=message):
        build_config(ModelArguments(model=SMALL, **fields))


def test_a_vocabulary_may_be_larger_than_the_tokenizers_but_not_smaller(tokenizer):
    larger = ModelArguments(model={**SMALL, "vocab_size": 320})
    assert build_config(larger, tokenizer).vocab_size == 320
    smaller = ModelArguments(model={**SMALL, "vocab_size": 260})
    with pytest.raises(ValueError, match="vocabulary of 260 and the tokenizer of 261"):
        build_config(smaller, tokenizer)


@pytest.mark.parametrize(
    ("attention", "fields", "limit"),
    [
        ("cosformer", {}, "max_position_embeddings of 64"),
        ("softmax", {}, "max_position_embeddings of 64"),
        ("cosformer", {"cos_horizon": 48}, "cos_horizon of 48"),
        ("cosformer", {"position_embedding_type": "none"}, "max_position_embeddings of 64"),
        ("cosformer", {"position_embedding_type": "none", "cos_horizon": 48}, "cos_horizon of 48"),
        ("cosformer", {"cos_horizon": "length"}, "max_position_embeddings of 64"),
        ("softmax", {"position_embedding_type": "none"}, None),
        ("cosformer", {"position_embedding_type": "none", "cos_horizon": "length"}, None),
        (
            "softmax",
            {
                "layer_attention": ["softmax", "cosformer"],
                "attention_kwargs": {"cosformer": {"cos_horizon": 48}},
            },
            "cos_horizon of 48",
        ),
    ],
)
def test_blocks_longer_than_the_model_takes_are_refused(attention, fields, limit):
    config = build_config(ModelArguments(attention=attention, model={**SMALL, **fields}))
    if limit is None:
        return check_block_size(config, 10_000)
    number = int(limit.split()[-1])
    check_block_size(config, number)
    with pytest.raises(ValueError, match=f"block_size {number + 1} is above the model's {limit}"):
        check_block_size(config, number + 1)


def test_a_saved_model_is_gone_on_from(saved, tokenizer):
    args = ModelArguments(attention="softmax", model_name_or_path=saved, model=SMALL)
    torch.manual_seed(9)
    model = build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM)
    original = hla.SoftmaxForMaskedLM.from_pretrained(saved)
    for a, b in zip(model.parameters(), original.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_saved_model_of_another_attention_is_refused(saved):
    args = ModelArguments(attention="cosformer", model_name_or_path=saved)
    with pytest.raises(ValueError, match=r"do not agree: .* pass --attention softmax"):
        build_config(args)


def test_a_saved_model_of_another_library_is_refused(tmp_path):
    config = RobertaConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    RobertaForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"of type roberta; convert it first: python scripts/"):
        build_config(ModelArguments(model_name_or_path=str(tmp_path)))


def test_what_is_no_saved_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no config\.json"):
        build_config(ModelArguments(model_name_or_path=str(tmp_path)))
    with pytest.raises(ValueError, match="neither a folder with a saved model nor"):
        build_config(ModelArguments(model_name_or_path=str(tmp_path / "none")))


def test_on_a_saved_model_only_training_fields_can_change(saved, tokenizer):
    def config(overrides):
        return build_config(
            ModelArguments(
                attention="softmax", model_name_or_path=saved, config_overrides=overrides
            ),
            tokenizer,
        )

    changed = config("hidden_dropout_prob=0.3,attention_probs_dropout_prob=0.2")
    assert (changed.hidden_dropout_prob, changed.attention_probs_dropout_prob) == (0.3, 0.2)
    assert config("hidden_size=32").hidden_size == 32
    with pytest.raises(ValueError, match=r"hidden_size 64 would change .*it has 32"):
        config("hidden_size=64")
    with pytest.raises(ValueError, match=r"unknown field 'hiden_size'.*did you mean 'hidden_size'"):
        config("hiden_size=64")
    with pytest.raises(ValueError, match="hidden_dropout_prob"):
        config("hidden_dropout_prob=1.5")


def test_a_tokenizer_larger_than_the_saved_models_vocabulary_is_refused(saved):
    text = ["abc abc abc"] * 9
    larger = load_or_train_tokenizer(None, text, 263, 64)
    args = ModelArguments(attention="softmax", model_name_or_path=saved)
    with pytest.raises(ValueError, match="vocabulary of 261 and the tokenizer of 263"):
        build_config(args, larger)


def test_other_attentions_are_proposed_only_where_they_take_the_same_fields():
    assert attentions_for(ModelArguments(model=SMALL)) == [
        "transnormer", "nystrom", "linear_transformer", "softmax",
    ]  # fmt: skip
    assert attentions_for(ModelArguments(model={**SMALL, "cos_horizon": 32})) == []
    with_dropout = ModelArguments(
        attention="softmax", model={**SMALL, "attention_probs_dropout_prob": 0.1}
    )
    # Its blocks have weights to drop.
    assert attentions_for(with_dropout) == ["transnormer"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", None, r"holds no model\.safetensors"),
        ("model.safetensors", b"", r"model\.safetensors is damaged or cut off"),
        ("model.safetensors", b"\x00garbage" * 9, r"model\.safetensors is damaged or cut off"),
        ("config.json", b"{", r"config\.json is not readable JSON"),
        ("config.json", b"[]", r"config\.json is damaged"),
        ("generation_config.json", b"{", r"^model_name_or_path: .*generation_config\.json is not"),
    ],
)
def test_broken_files_of_a_saved_model_are_named(saved, tmp_path, name, content, message):
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_bytes(content)
    args = ModelArguments(attention="softmax", model_name_or_path=str(folder))
    with pytest.raises(ValueError, match=message):
        build_config(args)


def test_weights_that_lack_a_part_of_the_model_are_refused(saved, tmp_path, tokenizer):
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "layers.1" in name)
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    args = ModelArguments(attention="softmax", model_name_or_path=str(folder))
    with pytest.raises(ValueError, match=r"its weights lack .*layers\.1"):
        build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM)


def test_weights_of_another_shape_are_refused(saved, tmp_path, tokenizer):
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 80}))
    args = ModelArguments(attention="softmax", model_name_or_path=str(folder))
    with pytest.raises(
        ValueError, match=r"cannot be loaded: .* is .*64.*, and its config asks for .*80"
    ):
        build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM)


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def rebuild(folder, tokenizer, change):
    """Build the model of a folder whose tensors were changed."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    args = ModelArguments(attention="softmax", model_name_or_path=str(folder))
    return build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM)


def test_weights_that_are_no_numbers_are_refused_by_name(copied, tokenizer):
    name = "model.layers.1.mlp.up_proj.weight"

    def change(tensors):
        tensors[name][0, :3] = float("nan")

    with pytest.raises(ValueError, match=rf"copy: {name} holds 3 values that are NaN or infinite"):
        rebuild(copied, tokenizer, change)


def test_weights_that_the_trunk_has_no_place_for_are_refused(copied, tokenizer):
    def change(tensors):
        tensors["model.layers.2.mlp.up_proj.weight"] = torch.zeros(2)

    with pytest.raises(ValueError, match=r"its weights hold model\.layers\.2.*has no place for"):
        rebuild(copied, tokenizer, change)


def test_a_pickle_is_refused_also_where_transformers_would_read_it(copied, tokenizer, monkeypatch):
    torch.save(load_file(copied / "model.safetensors"), copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    args = ModelArguments(attention="softmax", model_name_or_path=str(copied))
    with pytest.raises(ValueError, match=r"holds pytorch_model\.bin and no model\.safet"):
        build_config(args, tokenizer)
    # A name on the Hub is no folder to look into.
    monkeypatch.setattr(saved_model_setup, "check_saved_files", lambda source: None)
    with pytest.raises(ValueError, match=r"cannot be loaded: .*safetensors"):
        build_model(args, build_config(args, tokenizer), AutoModelForMaskedLM)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": ["softmax_baseline"]}, "config.json cannot be used"),
        ({"dtype": "float7"}, "dtype is 'float7'; expected one of float64"),
        ({"quantization_config": {"quant_method": "magic"}}, "packed weights cannot be trained"),
        (
            {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}},
            "code of its own, which is never run here",
        ),
    ],
)
def test_a_config_that_cannot_be_used_is_one_line(copied, fields, message):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | fields))
    with pytest.raises(ValueError, match=message):
        build_config(ModelArguments(attention="softmax", model_name_or_path=str(copied)))


@pytest.mark.parametrize("name", ["model_name_or_path", "tokenizer_name"])
def test_an_empty_name_is_not_taken_for_none(name):
    with pytest.raises(ValueError, match=f"{name}: got an empty text"):
        ModelArguments(**{name: " "})


@pytest.mark.parametrize("name", ["model_type", "architectures", "auto_map"])
def test_what_the_attention_decides_is_no_field(name):
    with pytest.raises(ValueError, match=f"{name} follows from --attention"):
        build_config(ModelArguments(model={**SMALL, name: "bert"}))


def test_a_model_that_does_not_fit_into_memory_is_not_begun(monkeypatch):
    args = ModelArguments(attention="softmax", model={**SMALL, "vocab_size": 2**31 - 1,
                                                      "hidden_size": 2**16})  # fmt: skip
    with pytest.raises(ValueError, match=r"take 563,.* GB, and this machine has .* GB of memory"):
        build_model(args, build_config(args), AutoModelForMaskedLM)


def test_a_model_of_which_each_machine_has_a_part_may_be_larger_than_one(monkeypatch, tokenizer):
    monkeypatch.setattr(model_setup, "memory_bytes", lambda: 100)
    args = ModelArguments(model=SMALL)
    config = build_config(args, tokenizer)
    with pytest.raises(ValueError, match=r"this machine has 0\.0 GB of memory"):
        build_model(args, config, AutoModelForMaskedLM)
    assert build_model(args, config, AutoModelForMaskedLM, shared=True).num_parameters() > 100


def test_looking_at_the_memory_draws_no_number(tokenizer):
    config = build_config(ModelArguments(model=SMALL), tokenizer)
    before = torch.get_rng_state()
    model_setup.check_memory(config, AutoModelForMaskedLM)
    assert torch.equal(torch.get_rng_state(), before)
