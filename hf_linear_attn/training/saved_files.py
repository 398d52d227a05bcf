"""The files of saved models and checkpoints: sound, or named with what is wrong with them."""

import json
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from transformers.trainer_pt_utils import safe_globals

from hf_linear_attn.models.saved_weights import ADAPTER_CONFIG, ADAPTER_WEIGHTS, strays
from hf_linear_attn.training.checksums import CHECKSUMS_FILE, file_checksum

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
GENERATION_FILE = "generation_config.json"
_NUMBERS = ("F64", "F32", "F16", "BF16")
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")
# Their symbols are fixed and saved nowhere.
_WITHOUT_TOKENIZER = ("linear_attn_lra",)


class DamagedFileError(Exception):
    """A file that is missing or cannot be used; the message names it."""


def check_model(folder: Path) -> None:
    """Read config, settings and tokenizer of a saved model, and open its weights.

    Raises:
        DamagedFileError: a file is missing, cut off or unreadable.
    """
    config = read_json(folder / "config.json")
    if config.get("model_type") not in _WITHOUT_TOKENIZER:
        for name in _TOKENIZER_FILES:
            read_json(folder / name)
    if (folder / GENERATION_FILE).is_file():
        read_json(folder / GENERATION_FILE)
    check_weights(folder)


def model_files(folder: Path) -> list[Path]:
    """The files of a saved model and its tokenizer that `check_model` reads.

    Raises:
        DamagedFileError: the index of the weights is damaged.
    """
    named = ("config.json", GENERATION_FILE, *_TOKENIZER_FILES, INDEX_FILE)
    there = [folder / name for name in named if (folder / name).is_file()]
    return [*there, *_weight_files(folder)]


def check_saved_model(folder: Path) -> None:
    """What loading a saved model needs; where it has checksums, every file that they name.

    Args:
        folder: a checkpoint, or the output folder of a finished run.

    Raises:
        DamagedFileError: a file is missing, unreadable, or not the one that was saved.
    """
    check_model(folder)
    check_checksums(folder)


def check_weights(folder: Path) -> None:
    """Open the files of a saved model's weights, one file or several shards.

    Raises:
        DamagedFileError: one is missing, cut off or unreadable.
    """
    for file in _weight_files(folder):
        _check_tensors(file)


def check_adapter(folder: Path) -> None:
    """Open the files of an adapter beside a saved model's weights, if it has one.

    Raises:
        DamagedFileError: one is missing, cut off or unreadable.
    """
    if (folder / ADAPTER_CONFIG).is_file():
        read_json(folder / ADAPTER_CONFIG)
        _check_tensors(folder / ADAPTER_WEIGHTS)


def read_json(file: Path) -> dict[str, Any]:
    """A JSON file that holds a mapping.

    Raises:
        DamagedFileError: missing, unreadable or no mapping.
    """
    if not file.is_file():
        _refuse(file, "is missing")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        _refuse(file, f"cannot be read ({error.strerror or error})", error)
    except (ValueError, RecursionError) as error:
        _refuse(file, "is not readable JSON", error)
    if not isinstance(content, dict):
        _refuse(file, "is damaged: it holds no mapping")
    return content


def read_torch_file(file: Path) -> Any:
    """What `torch.save` has written, tensors on the CPU; nothing in it is run.

    Raises:
        DamagedFileError: missing, cut off or damaged.
    """
    if not file.is_file():
        _refuse(file, "is missing")
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        content = None if damaged else _load_torch_file(file)
    except MemoryError:
        raise
    except OSError as error:
        _refuse(file, f"cannot be read ({error.strerror or error})", error)
    except Exception as error:  # of zipfile, zlib, pickle or torch: damaged bytes lead anywhere
        _refuse(file, "is damaged or cut off", error)
    if damaged:
        _refuse(file, "is damaged: a part of it fails its check sum")
    return content


def check_keys(file: Path, content: Any, keys: tuple[str, ...]) -> None:
    """Raise DamagedFileError where a file's content lacks one of these keys."""
    missing = [k for k in keys if k not in content] if isinstance(content, dict) else list(keys)
    if missing:
        _refuse(file, f"is damaged: it has no {', '.join(missing)}")


def check_kind(file: Path, content: Any, kinds: dict[str, Any]) -> None:
    """Raise DamagedFileError where a file's content lacks a key, or has another type under it."""
    check_keys(file, content, tuple(kinds))
    for name, kind in kinds.items():
        if not isinstance(content[name], kind) or isinstance(content[name], bool):
            _refuse(file, f"is damaged: {name} is {content[name]!r}")


def check_checksums(checkpoint: Path) -> None:
    """Raise DamagedFileError where a file is not the one that was saved; without sums all pass."""
    for file, expected in _checksums(checkpoint).items():
        if not file.is_file():
            _refuse(file, "is missing")
        if file_checksum(file) != expected:
            _refuse(file, f"is not what was saved (it differs from {CHECKSUMS_FILE})")


def changed_files(folder: Path) -> list[Path]:
    """The files that are there and are not those that were saved; without sums there are none.

    Raises:
        DamagedFileError: the checksums cannot be read.
    """
    saved = _checksums(folder).items()
    return [file for file, sha in saved if file.is_file() and file_checksum(file) != sha]


def _checksums(folder: Path) -> dict[Path, str]:
    """By file; none where the folder was saved by something that writes none."""
    if not (folder / CHECKSUMS_FILE).is_file():
        return {}
    return {folder / name: sha for name, sha in read_json(folder / CHECKSUMS_FILE).items()}


def _check_tensors(file: Path) -> None:
    if not file.is_file():
        _refuse(file, "is missing")
    try:
        # Opening compares the header with the size of the file.
        with safe_open(file, framework="pt") as tensors:
            kinds = {name: tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        _refuse(file, "is damaged or cut off", error)
    except OSError as error:
        _refuse(file, f"cannot be read ({error.strerror or error})", error)
    for name, kind in kinds.items():
        # Others are the halves of a quantisation whose scales nothing here would read.
        if kind not in _NUMBERS:
            _refuse(file, f"holds {name} as {kind}; expected one of {', '.join(_NUMBERS)}")


def _weight_files(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    if not index.is_file():
        return [folder / WEIGHTS_FILE]
    # Where both are, Transformers reads the one file.
    whole = [folder / WEIGHTS_FILE] if (folder / WEIGHTS_FILE).is_file() else []
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        _refuse(index, "is damaged: it has no weight_map")
    for name in strays(shards.values()):
        _refuse(index, f"names {name!r}, which is no .safetensors file beside it")
    return [*whole, *(folder / name for name in sorted(set(shards.values())))]


def _load_torch_file(file: Path) -> Any:
    with safe_globals():
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)


def _refuse(file: Path, fault: str, error: Exception | None = None) -> NoReturn:
    raise DamagedFileError(f"{file} {fault}") from error
