"""Trainer checkpoints: the newest one of a run, and whether it can be resumed from."""

import json
import pickle
from pathlib import Path
from typing import NoReturn

import torch
from safetensors import SafetensorError, safe_open
from transformers.trainer_pt_utils import safe_globals

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def checkpoint_steps(checkpoint: Path) -> int:
    """The number of optimiser steps in a folder's name `checkpoint-<steps>`."""
    return int(checkpoint.name.rpartition("-")[2])


def newest_checkpoint(folder: Path) -> Path | None:
    """The folder `checkpoint-<steps>` with the most steps, None where there is none."""
    found = [
        path
        for path in folder.glob("checkpoint-*")
        if path.is_dir() and path.name.removeprefix("checkpoint-").isdigit()
    ]
    return max(found, key=checkpoint_steps, default=None)


def check_checkpoint(checkpoint: Path) -> None:
    """Open every file that resuming needs.

    Args:
        checkpoint: a folder written by Trainer.

    Raises:
        ValueError: a file is missing, cut off or unreadable; the message names it.
    """
    _check_json(checkpoint / "trainer_state.json")
    _check_json(checkpoint / "config.json")
    for weights in _weight_files(checkpoint):
        _check_safetensors(weights)
    # Sharded engines keep optimiser and weights in folders of their own format.
    if any(checkpoint.glob("global_step*")) or any(checkpoint.glob("optimizer_*/")):
        return
    rng_states = sorted(checkpoint.glob("rng_state*.pth"))
    for file in rng_states or [checkpoint / "rng_state.pth"]:
        _check_torch_file(file)
    for name in ("optimizer.pt", "scheduler.pt"):
        _check_torch_file(checkpoint / name)


def _weight_files(checkpoint: Path) -> list[Path]:
    index = checkpoint / _INDEX
    if not index.is_file():
        return [checkpoint / _WEIGHTS]
    shards = _check_json(index).get("weight_map", {}).values()
    return [checkpoint / name for name in sorted(set(shards))]


def _check_json(file: Path) -> dict:
    if not file.is_file():
        _refuse(file, "is missing")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        _refuse(file, "is not readable JSON", error)


def _check_safetensors(file: Path) -> None:
    if not file.is_file():
        _refuse(file, "is missing")
    try:
        # Opening compares the header with the size of the file.
        with safe_open(file, framework="pt") as tensors:
            tensors.keys()
    except SafetensorError as error:
        _refuse(file, "is damaged or cut off", error)


def _check_torch_file(file: Path) -> None:
    if not file.is_file():
        _refuse(file, "is missing")
    try:
        with safe_globals():
            torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, EOFError, ValueError, OSError, pickle.UnpicklingError) as error:
        _refuse(file, "is damaged or cut off", error)


def _refuse(file: Path, fault: str, error: Exception | None = None) -> NoReturn:
    raise ValueError(
        f"cannot resume: {file} {fault}; delete the folder {file.parent} to go on from the "
        "checkpoint before it (or from the beginning), nothing was changed"
    ) from error
