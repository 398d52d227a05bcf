"""Trainer checkpoints: the newest one of a run, and whether it can be resumed from."""

import json
from collections.abc import Iterator
from pathlib import Path

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.checksums import CHECKSUMS_FILE
from hf_linear_attn.training.engines import Engine
from hf_linear_attn.training.saved_files import (
    DamagedFileError,
    check_checksums,
    check_keys,
    check_kind,
    check_model,
    read_json,
    read_torch_file,
)

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
        check_checksums(checkpoint)
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
        check_kind(file, content, {"name": str, "processes": int})
        if content["processes"] < 1:
            raise DamagedFileError(f"{file} is damaged: processes is {content['processes']}")
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


def _check_kinds(checkpoint: Path) -> None:
    state = checkpoint / TRAINER_STATE_FILE
    check_kind(state, read_json(state), _STATE_KEYS)
    check_model(checkpoint)
    engine = saved_engine(checkpoint)
    for file in _rng_files(checkpoint, engine.processes):
        check_keys(file, read_torch_file(file), ("cpu",))
    # Sharded engines keep optimiser and weights in folders of their own formats, which the
    # checksums cover: their checkpoints do not count without.
    if not engine.is_sharded:
        optimizer = checkpoint / "optimizer.pt"
        check_keys(optimizer, read_torch_file(optimizer), _OPTIMIZER_KEYS)
    scheduler = checkpoint / "scheduler.pt"
    check_keys(scheduler, read_torch_file(scheduler), ("last_epoch",))


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
