"""The checksums of a finished run's model: what was changed is told from what is missing."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file
from torch import zeros
from transformers import Trainer

from hf_linear_attn.training import run as run_module
from hf_linear_attn.training.saved_files import DamagedFileError, check_model, model_files
from hf_linear_attn.training.sealed_model import check_not_edited, seal_model, unseal_model
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.training.run_arguments import snapshot
from tests.training.tiny_run import make_trainer


@pytest.fixture
def finished(tmp_path):
    """The folder of a run with a sealed model."""
    folder = tmp_path / "run"
    folder.mkdir()
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
    for name in names:
        (folder / name).write_text(json.dumps({"name": name}))
    save_file({"weight": zeros(3)}, folder / "model.safetensors")
    seal_model(folder)
    return folder


def test_a_model_that_is_as_it_was_saved_may_be_replaced(finished):
    check_not_edited(finished)
    (finished / "notes.md").write_text("mine")
    check_not_edited(finished)


def test_each_file_of_the_model_that_was_changed_is_named(finished):
    files = model_files(finished)
    assert len(files) == 5
    for file in files:
        saved = file.read_bytes()
        file.write_bytes(saved + b" ")
        before = snapshot(finished)
        with pytest.raises(ValueError, match=f"{file} differs .* or put the saved one back"):
            check_not_edited(finished)
        assert snapshot(finished) == before
        file.unlink()
        check_not_edited(finished)  # what is not there is not lost
        file.write_bytes(saved)
    for file in files:
        file.write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"config\.json and .*tokenizer\.json and "):
        check_not_edited(finished)


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_checksums_that_cannot_be_read_are_named(finished, content):
    (finished / "checksums.json").write_text(content)
    with pytest.raises(ValueError, match=r"checksums\.json is .*; delete that file to go on"):
        check_not_edited(finished)
    (finished / "checksums.json").unlink()
    check_not_edited(finished)


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_damaged_settings_of_generation_are_named_as_config_and_tokenizer_are(finished, content):
    check_model(finished)
    (finished / "generation_config.json").write_text(content)
    with pytest.raises(DamagedFileError, match=r"generation_config\.json is "):
        check_model(finished)
    (finished / "generation_config.json").unlink()
    check_model(finished)


def test_a_new_model_has_no_checksums_of_the_one_before_it(tmp_path, monkeypatch):
    """Killed before its own are written, the run would take its own files for a person's."""
    tokenizer = load_or_train_tokenizer(None, ["some text"], 261, 64)
    trainer = make_trainer(tmp_path, tokenizer)
    trainer.save_model()
    seal_model(tmp_path)
    sealed = snapshot(tmp_path)
    monkeypatch.setattr(type(trainer.model), "save_pretrained", _full_disk)
    with pytest.raises(OSError, match="No space left"):
        trainer.save_model()
    assert snapshot(tmp_path) == sealed
    monkeypatch.undo()
    trainer.save_model(str(tmp_path / "checkpoint-1"))
    assert (tmp_path / "checksums.json").is_file()
    trainer.save_model()
    assert not (tmp_path / "checksums.json").is_file()


def _full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def test_an_upload_in_training_takes_the_seal_off(tmp_path, monkeypatch):
    """It copies a checkpoint's model over that of the shorter run."""
    tokenizer = load_or_train_tokenizer(None, ["some text"], 261, 64)
    trainer = make_trainer(tmp_path / "run", tokenizer, max_steps=1)
    trainer.save_model(_internal_call=True)
    seal_model(tmp_path / "run")
    monkeypatch.setattr(Trainer, "_push_from_checkpoint", lambda self, folder: None)
    trainer._push_from_checkpoint(str(tmp_path / "run" / "checkpoint-1"))
    assert not (tmp_path / "run" / "checksums.json").exists()


@pytest.mark.parametrize("error", [None, ValueError("the Hub is not reached")])
def test_an_upload_at_the_end_leaves_the_model_sealed(finished, monkeypatch, error):
    """It saves the model once more, which takes the seal off."""

    def upload():
        unseal_model(finished)
        if error is not None:
            raise error

    monkeypatch.setattr(run_module, "save_final_state", lambda *_: None)
    nothing = SimpleNamespace(wait_for_everyone=lambda: None)
    trainer: Any = SimpleNamespace(
        accelerator=nothing, is_world_process_zero=lambda: True, hub_model_id="me/x", state=None,
        push_to_hub=upload,
    )  # fmt: skip
    run: Any = SimpleNamespace(output_dir=finished, training=SimpleNamespace(push_to_hub=True))
    with pytest.raises(ValueError, match="without training") if error else nullcontext():
        run_module._publish(run, trainer)
    (finished / "config.json").write_text("mine")
    with pytest.raises(ValueError, match=r"config\.json differs"):
        check_not_edited(finished)
