"""Folders of weights that someone has tampered with, and what our classes make of them."""

import json

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.models.saved_weights import check_numbers, check_shards, strays
from tests.conftest import TINY

INDEX = "model.safetensors.index.json"


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "saved"
    hla.CosformerModel(hla.CosformerConfig(**TINY)).save_pretrained(folder, max_shard_size="8KB")
    return folder


def redirect(saved, name):
    """Let the index name another file for its first shard, which lies above the folder, too."""
    index = json.loads((saved / INDEX).read_text())
    first = min(index["weight_map"].values())
    (saved.parent / "above.safetensors").write_bytes((saved / first).read_bytes())
    index["weight_map"] = {k: name if v == first else v for k, v in index["weight_map"].items()}
    (saved / INDEX).write_text(json.dumps(index))


def test_sound_shards_are_read(saved):
    check_shards(saved)
    hla.CosformerModel.from_pretrained(saved)


@pytest.mark.parametrize(
    "name", ["../above.safetensors", "/above.safetensors", "a\\b.safetensors", "a\n.safetensors",
             "a\0.safetensors", "pytorch_model.bin", "", 3, None],
)  # fmt: skip
def test_an_index_that_leads_elsewhere_is_refused(saved, name):
    assert strays(["model-00001-of-00002.safetensors", name]) == [name]
    redirect(saved, name)
    with pytest.raises(ValueError, match=r"expected the names of \.safetensors files beside it"):
        hla.CosformerModel.from_pretrained(saved)


def test_what_is_no_index_is_left_to_the_reader(tmp_path):
    for content in ("{", "[]", '{"weight_map": 3}', "{}"):
        (tmp_path / INDEX).write_text(content)
        check_shards(tmp_path)
    for source in (None, "user/name", tmp_path / "none", "a\0b"):
        check_shards(source)


def test_damaged_weights_are_one_sentence(saved):
    file = min(saved.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(
        ValueError, match=r"the weights of .*saved cannot be loaded: they are damaged"
    ):
        hla.CosformerModel.from_pretrained(saved)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_tensor_that_holds_no_numbers_is_named(saved, value):
    model = hla.CosformerModel.from_pretrained(saved)
    check_numbers(model, "here")
    with torch.no_grad():
        model.layers[1].mlp.up_proj.weight[:2, 0] = value
    with pytest.raises(ValueError, match=r"here: layers\.1\.mlp\.up_proj\.weight holds 2 values"):
        check_numbers(model, "here")
