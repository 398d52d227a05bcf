"""What the programs are given: small sound files, and the ways in which they are damaged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.hostile.case import Case, Maker
from tests.recipes.glue_recipe import SETTINGS as GLUE
from tests.recipes.lra_recipe import SETTINGS as LRA
from tests.recipes.mlm_recipe import SETTINGS as LANGUAGE

TEXT, ROWS, OUTPUT = "text.txt", "rows.jsonl", "run"
_ON_TEXT: dict[str, Any] = LANGUAGE | {"train_file": TEXT}
_ON_ROWS: dict[str, Any] = GLUE | {
    "task": "custom",
    "train_file": ROWS,
    "text_column": "text",
    "label_column": "label",
    "validation_fraction": 0.2,
}
_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def sound_text() -> str:
    """Forty short documents."""
    return "\n\n".join(
        " ".join(_WORDS[(i * 7 + j * (i % 3 + 1)) % 10] for j in range(12)) + "." for i in range(40)
    )


def sound_rows() -> list[dict[str, Any]]:
    """Twenty rows of two classes."""
    kinds = ("bad", "good")
    return [{"text": f"{_WORDS[i % 10]} {kinds[i % 2]} film", "label": i % 2} for i in range(20)]


def prepare(folder: Path, case: Case, store: Path) -> None:
    """Make the folder in which the program of a case starts.

    Args:
        folder: to make.
        case: says what is put into it, over a text and settings under which a run takes a second.
        store: of sound models.
    """
    folder.mkdir(parents=True)
    (folder / TEXT).write_text(sound_text())
    settings = {"mlm": _ON_TEXT, "clm": _ON_TEXT, "glue": _ON_ROWS, "lra": LRA}.get(case.program)
    if case.program == "glue":
        (folder / ROWS).write_text("\n".join(map(json.dumps, sound_rows())))
    content = (settings or _ON_TEXT) | {"output_dir": OUTPUT}
    if case.program == "lra":
        content |= {"generated_dir": "../drawn"}  # data of their own, and no part of a run
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    for make in case.make:
        make(folder, store)


def write(name: str, content: str | bytes) -> Maker:
    """A file."""

    def make(folder: Path, _: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def write_json(name: str, content: Any) -> Maker:
    """A file of JSON."""
    return write(name, json.dumps(content))


def folder(name: str) -> Maker:
    """An empty folder."""
    return lambda at, _: (at / name).mkdir(parents=True)


def copy(model: str, to: str = "saved") -> Maker:
    """A sound model of the store."""

    def make(at: Path, store: Path) -> None:
        shutil.copytree(store / model, at / to)

    return make


def change_json(name: str, **fields: Any) -> Maker:
    """Fields of a JSON file over those that it has."""

    def make(at: Path, _: Path) -> None:
        content = json.loads((at / name).read_text()) | fields
        (at / name).write_text(json.dumps(content))

    return make


def change_bytes(name: str, change: Callable[[bytes], bytes]) -> Maker:
    """A file with other bytes."""

    def make(at: Path, _: Path) -> None:
        (at / name).write_bytes(change((at / name).read_bytes()))

    return make


def remove(name: str) -> Maker:
    """A file less."""
    return lambda at, _: (at / name).unlink()


def change_weights(change: Callable[[dict[str, Any]], None], to: str = "saved") -> Maker:
    """Other tensors in a saved model; sound as a file."""

    def make(at: Path, _: Path) -> None:
        from safetensors.torch import load_file, save_file

        file = at / to / "model.safetensors"
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file, metadata={"format": "pt"})

    return make


def mode(name: str, bits: int) -> Maker:
    """A file or folder with other permissions."""
    return lambda at, _: (at / name).chmod(bits)


def symlink(name: str, to: str) -> Maker:
    """A symbolic link."""

    def make(at: Path, _: Path) -> None:
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).symlink_to(to)

    return make
