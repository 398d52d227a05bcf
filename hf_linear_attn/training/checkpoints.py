"""Trainer checkpoints: the newest one of a run, and whether it can be resumed from."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from transformers.trainer_pt_utils import safe_globals

from hf_linear_attn.models.saved_weights import ADAPTER_CONFIG, ADAPTER_WEIGHTS, strays
from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.checksums import CHECKSUMS_FILE, file_checksum
from hf_linear_attn.training.engines import Engine

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_NUMBERS = ("F64", "F32", "F16", "BF16")
ENGINE_FILE = "engine.json"
TRAINER_STATE_FILE = "trainer_state.json"
_STATE_KEYS = {
    "global_step": int,
    "max_steps": int,
    "epoch": int | float,
    "num_train_epochs": int | float,
    "log_history": list,
}
_OPTIMIZER_KEYS = ("state", "param_groups")
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")
# Their symbols are fixed and saved nowhere.
_WITHOUT_TOKENIZER = ("linear_attn_lra",)
# What tells the engine of a checkpoint that does not name it.
_SIGNS = {
    "zero3": "global_step*/zero_pp_rank_*_model_states.pt",
    "zero2": "global_step*",
    "fsdp2": "pytorch_model_fsdp_*",
}


def checkpoint_steps(checkpoint: Path) -> int:
    """The number of optimiser steps in a folder's name `checkpoint-<steps>`."""
    return int(checkpoint.name.rpartition("-")[2])


def all_checkpoints(folder: Path) -> list[Path]:
    """The folders `checkpoint-<steps>` of a run, complete or not, in the order of their steps."""
    found = [
        path
        for path in folder.glob("checkpoint-*")
        if path.is_dir() and path.name.removeprefix("checkpoint-").isdigit()
    ]
    return sorted(found, key=checkpoint_steps)


def newest_checkpoint(folder: Path) -> Path | None:
    """The saved folder `checkpoint-<steps>` with the most steps, None where there is none.

    A folder whose saving was interrupted does not count, see `unfinished_checkpoints`.
    """
    unfinished = unfinished_checkpoints(folder)
    return max(set(all_checkpoints(folder)) - set(unfinished), key=checkpoint_steps, default=None)


def unfinished_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints whose saving was interrupted, in the order of their steps.

    They lack the checksums, which are written last, and either a whole state, which Trainer writes
    last of its own files, or other checkpoints of the run have checksums of an earlier step. Where
    several processes write, the state says nothing of the others: checksums alone count.
    """
    found = all_checkpoints(folder)
    with_checksums = [p for p in found if (p / CHECKSUMS_FILE).is_file()]
    first = min(map(checkpoint_steps, with_checksums), default=None)
    return [
        path
        for path in found
        if path not in with_checksums
        and (
            not _has_whole_state(path)
            or (first is not None and first < checkpoint_steps(path))
            or _is_of_several_processes(path)
        )
    ]


def check_checkpoint(checkpoint: Path) -> None:
    """Read every file that resuming needs.

    Args:
        checkpoint: a folder written by Trainer, with checksums or without.

    Raises:
        ValueError: a file is missing, cut off, unreadable, of the wrong kind, or not the one that
            was saved; the message names it.
    """
    try:
        _check_kinds(checkpoint)
        _check_checksums(checkpoint)
    except DamagedFileError as error:
        raise ValueError(
            f"cannot resume: {error}; delete the folder {checkpoint} to go on from the "
            "checkpoint before it (or from the beginning), nothing was changed"
        ) from error


def write_engine(checkpoint: Path, engine: Engine) -> None:
    """Write down which engine has saved a checkpoint."""
    content = {"name": engine.name, "processes": engine.processes}
    write_atomically(checkpoint / ENGINE_FILE, json.dumps(content) + "\n")


def saved_engine(checkpoint: Path) -> Engine:
    """The engine that has saved a checkpoint; without its file, what the other files tell.

    Raises:
        DamagedFileError: the file cannot be read.
    """
    file = checkpoint / ENGINE_FILE
    if file.is_file():
        content = read_json(file)
        _check_kind(file, content, {"name": str, "processes": int})
        if content["processes"] < 1:
            _refuse(file, f"is damaged: processes is {content['processes']}")
        return Engine(content["name"], content["processes"])
    processes = max(len(list(checkpoint.glob("rng_state_*.pth"))), 1)
    name = next((name for name, sign in _SIGNS.items() if any(checkpoint.glob(sign))), None)
    return Engine(name or ("ddp" if processes > 1 else "single"), processes)


def check_same_engine(checkpoint: Path, engine: Engine) -> None:
    """Raise ValueError if a checkpoint was saved by another engine or number of processes.

    Trainer would take it up, with other batches, without random states, or not at all, depending
    on the engines.
    """
    saved = saved_engine(checkpoint)
    if saved != engine:
        raise ValueError(
            f"cannot resume: {checkpoint} was saved by {saved}, and this is {engine}, which would "
            f"not train the same; {_how_to_launch(saved)}, or start a run of its own from these "
            f"weights with --model_name_or_path {checkpoint} and another output_dir (nothing was "
            "changed)"
        )


class DamagedFileError(Exception):
    """A file that is missing or cannot be used; the message names it."""


def check_model(folder: Path) -> None:
    """Read config and tokenizer of a saved model, and open its weights.

    Raises:
        DamagedFileError: a file is missing, cut off or unreadable.
    """
    config = read_json(folder / "config.json")
    if config.get("model_type") not in _WITHOUT_TOKENIZER:
        for name in _TOKENIZER_FILES:
            read_json(folder / name)
    check_weights(folder)


def model_files(folder: Path) -> list[Path]:
    """The files of a saved model and its tokenizer that `check_model` reads.

    Raises:
        DamagedFileError: the index of the weights is damaged.
    """
    named = ("config.json", *_TOKENIZER_FILES, INDEX_FILE)
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
    _check_checksums(folder)


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


def _check_kinds(checkpoint: Path) -> None:
    state = checkpoint / TRAINER_STATE_FILE
    _check_kind(state, read_json(state), _STATE_KEYS)
    check_model(checkpoint)
    engine = saved_engine(checkpoint)
    for file in _rng_files(checkpoint, engine.processes):
        _check_keys(file, _read_torch_file(file), ("cpu",))
    # Sharded engines keep optimiser and weights in folders of their own formats, which the
    # checksums cover: their checkpoints do not count without.
    if not engine.is_sharded:
        optimizer = checkpoint / "optimizer.pt"
        _check_keys(optimizer, _read_torch_file(optimizer), _OPTIMIZER_KEYS)
    scheduler = checkpoint / "scheduler.pt"
    _check_keys(scheduler, _read_torch_file(scheduler), ("last_epoch",))


def _has_whole_state(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / TRAINER_STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _is_of_several_processes(checkpoint: Path) -> bool:
    return any(any(checkpoint.glob(sign)) for sign in ("rng_state_*.pth", *_SIGNS.values()))


def _rng_files(checkpoint: Path, processes: int) -> Iterator[Path]:
    if processes == 1:
        yield checkpoint / "rng_state.pth"
        return
    for process in range(processes):
        yield checkpoint / f"rng_state_{process}.pth"


def _how_to_launch(engine: Engine) -> str:
    if engine.name == "single":
        return "start it without a launcher or with --num_processes 1"
    return (
        f"launch it as before (accelerate launch --config_file recipes/accelerate/{engine.name}"
        f".yaml --num_processes {engine.processes} …)"
    )


def _check_keys(file: Path, content: Any, keys: tuple[str, ...]) -> None:
    missing = [k for k in keys if k not in content] if isinstance(content, dict) else list(keys)
    if missing:
        _refuse(file, f"is damaged: it has no {', '.join(missing)}")


def _check_kind(file: Path, content: Any, kinds: dict[str, Any]) -> None:
    _check_keys(file, content, tuple(kinds))
    for name, kind in kinds.items():
        if not isinstance(content[name], kind) or isinstance(content[name], bool):
            _refuse(file, f"is damaged: {name} is {content[name]!r}")


def _check_checksums(checkpoint: Path) -> None:
    if not (checkpoint / CHECKSUMS_FILE).is_file():
        return  # saved by something that writes none
    for name, expected in read_json(checkpoint / CHECKSUMS_FILE).items():
        file = checkpoint / name
        if not file.is_file():
            _refuse(file, "is missing")
        if file_checksum(file) != expected:
            _refuse(file, f"is not what was saved (it differs from {CHECKSUMS_FILE})")


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


def _read_torch_file(file: Path) -> Any:
    if not file.is_file():
        _refuse(file, "is missing")
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        content = None if damaged else _load_torch_file(file)
    except Exception as error:  # of zipfile, zlib, pickle or torch: damaged bytes lead anywhere
        _refuse(file, "is damaged or cut off", error)
    if damaged:
        _refuse(file, "is damaged: a part of it fails its check sum")
    return content


def _load_torch_file(file: Path) -> Any:
    with safe_globals():
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)


def _refuse(file: Path, fault: str, error: Exception | None = None) -> NoReturn:
    raise DamagedFileError(f"{file} {fault}") from error
