"""What is written is there as a whole, or what was there before."""

import os
from pathlib import Path

import pytest

from hf_linear_attn.training.atomic_files import (
    remove_half_written,
    replaced,
    replaced_files,
    write_atomically,
)


class NoRoomError(OSError):
    pass


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_place_when_it_is_written(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("old")
    with replaced(file) as path:
        path.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert names(tmp_path) == ["table.csv"]


def test_after_an_error_a_file_is_what_it_was_and_nothing_lies_beside_it(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("old")

    def fail():
        with replaced(file) as path:
            path.write_text("ne")
            raise NoRoomError

    with pytest.raises(NoRoomError):
        fail()
    assert file.read_text() == "old"
    assert names(tmp_path) == ["table.csv"]


def test_text_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    def no_room(*_):
        raise NoRoomError

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(NoRoomError):
        write_atomically(tmp_path / "run.yaml", "new")
    assert names(tmp_path) == []


def test_files_take_their_places_together_the_weights_last(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_text("old")
    (tmp_path / "other.txt").write_text("another's")
    original, order = os.replace, []

    def replace(source, target):
        order.append(Path(target).name)
        original(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with replaced_files(tmp_path, last="model") as folder:
        (folder / "model.safetensors").write_text("new")
        (folder / "tokenizer.json").write_text("new")
        (folder / "templates").mkdir()
        (folder / "templates" / "chat.jinja").write_text("new")
        assert (tmp_path / "model.safetensors").read_text() == "old"
    assert (tmp_path / "model.safetensors").read_text() == "new"
    assert (tmp_path / "templates" / "chat.jinja").read_text() == "new"
    assert order[-1] == "model.safetensors"
    assert names(tmp_path) == ["model.safetensors", "other.txt", "templates", "tokenizer.json"]


def test_after_an_error_all_files_are_what_they_were(tmp_path):
    (tmp_path / "config.json").write_text("old")

    def fail():
        with replaced_files(tmp_path, last="model") as folder:
            (folder / "config.json").write_text("new")
            raise NoRoomError

    with pytest.raises(NoRoomError):
        fail()
    assert (tmp_path / "config.json").read_text() == "old"
    assert names(tmp_path) == ["config.json"]


def test_what_a_killed_process_was_writing_is_removed_and_nothing_else(tmp_path):
    # A user's notes may begin with a dot and end with a number.
    kept = [".hidden", "checkpoint-4", ".env.local", ".notes.1", "run.yaml", "a.1"]
    for name in [*kept, ".run.yaml.123.hf_linear_attn", ".loss_curve.png.7.hf_linear_attn"]:
        (tmp_path / name).write_text("")
    half = tmp_path / ".files.123.hf_linear_attn"
    half.mkdir()
    (half / "model.safetensors").write_text("half")
    remove_half_written(tmp_path)
    assert names(tmp_path) == sorted(kept)
