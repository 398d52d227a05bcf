"""Saved models that are not whole: a sentence each. And their cards, for another place."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import hf_linear_attn as hla
from hf_linear_attn.integrations.card_drafts import is_signed
from hf_linear_attn.integrations.card_file import is_as_written, marked
from hf_linear_attn.integrations.config_card import config_card
from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.integrations.moved_card import moved_card
from hf_linear_attn.integrations.saved_model import SavedModel, load_saved_model
from tests.conftest import TINY
from tests.integrations.test_model_card import FACTS
from tests.models.exported import tiny_tokenizer

MODEL = hla.CosformerForMaskedLM(hla.CosformerConfig(**TINY))


@pytest.fixture
def folder(tmp_path):
    MODEL.save_pretrained(tmp_path / "m")
    return tmp_path / "m"


def refused(source, message, **options):
    with pytest.raises(ValueError, match=message):
        load_saved_model(str(source), **options)


def change(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_weights_that_do_not_fit_the_config_are_refused(folder):
    name = "model.layers.0.self_attn.q_proj.weight"
    change(folder, lambda tensors: tensors.update({name: tensors[name][:, :5].clone()}))
    refused(folder, rf"do not fit its config: {name} is \(32, 5\), and \(32, 32\) is asked for\.")
    change(folder, lambda tensors: tensors.pop(name))
    refused(folder, f"lack {name}, which its config asks for")


def test_tensors_without_a_place_are_named(folder):
    assert load_saved_model(str(folder)).left_out == ()
    change(folder, lambda tensors: tensors.update({"value_head.weight": torch.ones(3)}))
    assert load_saved_model(str(folder)).left_out == ("value_head.weight",)


def test_files_that_are_damaged_or_missing_are_one_sentence(folder, tmp_path, monkeypatch):
    refused(folder / "config.json", "config.json is a file; give the folder")
    refused(folder, "is a folder, and revision 'v1' is for the Hub", revision="v1")
    for name in ("./typo", "deep/er/typo", str(tmp_path / "typo")):
        refused(name, f"^there is no folder {name} here")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    refused("runs/typo", "^there is no folder runs/typo here, and runs/typo is not on this machine")
    refused("others/typo", "^others/typo is not on this machine")
    tiny_tokenizer().save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{broken")
    refused(folder, "the tokenizer of .* cannot be loaded")
    (folder / "model.safetensors").unlink()
    refused(folder, "the weights of .* cannot be loaded")
    for garbage in (b"garbage" * 100, b""):
        (folder / "pytorch_model.bin").write_bytes(garbage)
        refused(folder, "holds pytorch_model.bin and no model.safetensors. A pickle is a program")
    for text in ("{broken", "{}", json.dumps({"model_type": "nope"}), "[]"):
        (folder / "config.json").write_text(text)
        with pytest.raises(ValueError, match=r"."):
            load_saved_model(str(folder))


def test_settings_of_generation_come_along_or_are_refused(folder):
    file = folder / "generation_config.json"
    hla.CosformerForCausalLM(hla.CosformerConfig(**TINY)).save_pretrained(folder)
    file.write_text('{"do_sample": true, "temperature": 0.3}')
    assert load_saved_model(str(folder)).model.generation_config.temperature == 0.3
    file.write_text('{"do_sample": true, "temperature": 0.3')
    refused(folder, r"m/generation_config\.json is not readable JSON, so that what it sets for")


@pytest.mark.parametrize("name", ["README.md", "conversion.md", "attention_transfer.png"])
def test_a_link_that_leads_out_of_the_folder_is_not_handed_on(folder, tmp_path, name):
    (tmp_path / "m-secret").write_text("a secret")
    for target in ("../m-secret", tmp_path / "m-secret"):
        (folder / name).symlink_to(target)
        refused(folder, rf"m/{name} is a link that leads out of the folder.*or remove it")
        (folder / name).unlink()
    (folder / "inner").mkdir()
    (folder / "inner" / "page").write_text("page")
    (folder / name).symlink_to("inner/page")
    (tmp_path / "link").symlink_to("m")
    saved = load_saved_model(str(tmp_path / "link"))
    assert [saved.card, *(page.name for page in saved.pages)] == (
        ["page"] if name == "README.md" else [None, name]
    )


def test_links_of_the_hubs_own_cache_lead_to_its_blobs_alone(folder, tmp_path):
    repository = tmp_path / "models--me--tiny"
    snapshot, blobs = repository / "snapshots" / "0123abc", repository / "blobs"
    snapshot.parent.mkdir(parents=True)
    blobs.mkdir()
    folder.rename(snapshot)
    (snapshot / "README.md").symlink_to("../../blobs/6c6c")
    (blobs / "6c6c").write_text("a card")
    assert load_saved_model(str(snapshot)).card == "a card"
    # The same layout under other names is no cache.
    repository.rename(tmp_path / "tiny")
    refused(tmp_path / "tiny" / "snapshots" / "0123abc", "README.md is a link that leads out of")
    (tmp_path / "tiny").rename(repository)
    # A stranger's cache, whose blobs are links themselves.
    (tmp_path / "6c6c").write_text("a secret")
    (blobs / "6c6c").unlink()
    (blobs / "6c6c").symlink_to(tmp_path / "6c6c")
    refused(snapshot, "README.md is a link that leads out of")
    (blobs / "6c6c").unlink()
    blobs.rmdir()
    blobs.symlink_to(tmp_path)
    refused(snapshot, "README.md is a link that leads out of")


def card_of_a_recipe(tmp_path, path):
    facts = dataclasses.replace(FACTS, path=path)
    return write_model_card(tmp_path, facts).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "shared_as"),
    [("tiny", ()), ("runs/tiny", ()), ("../runs/tiny", ()), ("me/old", ("me/old",))],
)
def test_a_recipes_card_loads_the_model_from_its_new_place(tmp_path, path, shared_as):
    """It names the folder as the recipe was told, its last name, or a name on the Hub."""
    source = tmp_path / "runs" / "tiny"
    source.mkdir(parents=True)
    text = card_of_a_recipe(tmp_path, path) + 'From `X.from_pretrained("org/base")`.\n'
    saved = SavedModel(MODEL, None, text)
    card = moved_card(
        saved, str(source), "me/new", with_code=True, revision="v1", shared_as=shared_as
    )
    place = '"me/new", revision="v1"'
    assert text.count(f'"{path}"') == 3
    assert f'"{path}"' not in card
    assert f"AutoTokenizer.from_pretrained({place})" in card
    assert f"AutoModelForMaskedLM.from_pretrained({place})" in card
    assert f'pipeline("fill-mask", model={place})' in card
    assert f"AutoModelForMaskedLM.from_pretrained({place}, trust_remote_code=True)" in card
    assert 'from_pretrained("org/base")' in card
    again = moved_card(SavedModel(MODEL, None, card), "me/new", "out", with_code=True)
    assert "me/new" not in again
    assert again.count('from_pretrained("out"') == 3
    assert again.count("trust_remote_code") == 1
    assert "trust_remote_code" not in moved_card(saved, str(source), "out", with_code=False)


def test_a_moved_card_stays_signed_and_one_that_is_missing_stays_so():
    card = config_card(MODEL, "me/a", with_code=False, has_tokenizer=False)
    moved = moved_card(SavedModel(MODEL, None, card), "me/a", "me/b", with_code=True)
    assert is_signed(moved)
    assert 'from_pretrained("me/b", trust_remote_code=True)' in moved
    assert moved_card(SavedModel(MODEL, None, None), "me/a", "me/b", with_code=True) is None


def test_the_moved_card_of_a_run_is_as_written_unless_a_person_has_changed_it():
    of_a_run = marked('Use `from_pretrained("me/a")`.')
    moved = moved_card(SavedModel(MODEL, None, of_a_run), "me/a", "me/b", with_code=True)
    assert 'from_pretrained("me/b")' in moved
    assert is_as_written(moved)
    assert moved.count("written by a run") == 1
    edited = of_a_run.replace("Use", "I use")
    moved = moved_card(SavedModel(MODEL, None, edited), "me/a", "me/b", with_code=False)
    assert not is_as_written(moved)
