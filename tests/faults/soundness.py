"""What of a run is complete, and whether two runs ended as one."""

import csv
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

# What a clock says of a run.
_OF_A_CLOCK = ("runtime", "per_second", "mfu", "seconds", "preparation_time")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
MODEL_FILES = ("model.safetensors", "config.json", *_TOKENIZER_FILES)


@dataclass(frozen=True)
class Complete:
    """What is complete in the folder of a run.

    Attributes:
        sealed: the steps of checkpoints whose checksums are there and hold.
        torn: those of the others.
        whole: those of them whose state, the last file but the checksums, is there.
        model: whether model and tokenizer can be read.
        begun: whether the folder is marked as a run's.
        finished: whether the run is marked as finished.
    """

    sealed: tuple[int, ...] = ()
    torn: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    model: bool = False
    begun: bool = False
    finished: bool = False

    @property
    def newest(self) -> int:
        """The steps of the newest complete checkpoint, 0 without one.

        A first checkpoint that lacks nothing but the checksums is complete.
        """
        return max(self.sealed or self.whole, default=0)


def complete(run: Path) -> Complete:
    """Look at the folder of a run, which need not exist."""
    steps = sorted(int(path.name.rpartition("-")[2]) for path in run.glob("checkpoint-*"))
    sealed = [step for step in steps if is_sealed(run / f"checkpoint-{step}")]
    torn = [step for step in steps if step not in sealed]
    states = {step: run / f"checkpoint-{step}" / "trainer_state.json" for step in torn}
    return Complete(
        sealed=tuple(sealed),
        torn=tuple(torn),
        whole=tuple(step for step, state in states.items() if _is_json(state)),
        model=_is_model(run),
        begun=(run / "run.yaml").is_file(),
        finished=(run / "trainer_state.json").is_file(),
    )


def is_sealed(checkpoint: Path) -> bool:
    """Whether every file of a checkpoint is the one that its checksums, written last, name."""
    try:
        sums = json.loads((checkpoint / "checksums.json").read_text())
        return all(digest(checkpoint / name) == expected for name, expected in sums.items())
    except (OSError, ValueError):
        return False


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def snapshot(folder: Path) -> dict[str, str]:
    """The content of every file below a folder, by name."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): digest(path) for path in files}


def lost(before: Complete, after: Complete) -> list[str]:
    """What was complete before a start and is not after it."""
    found = []
    if after.newest < before.newest:
        found.append(f"checkpoint-{before.newest} was complete; now {after.sealed or 'none'} is")
    for name in ("model", "begun", "finished"):
        if getattr(before, name) and not getattr(after, name):
            found.append(f"{name} was there and is gone")
    return found


def differences(run: Path, whole: Path) -> list[str]:
    """Where a run differs, by a bit, from the uninterrupted one; nothing where it is the same."""
    found = []
    for name in MODEL_FILES:
        if not (run / name).is_file() or digest(run / name) != digest(whole / name):
            found.append(name)
    for name, read in {"history": history, "results": results, "curve": curve}.items():
        if read(run) != read(whole):
            found.append(name)
    if _predictions(run) != _predictions(whole):
        found.append("predictions")
    if _names(run) != _names(whole):
        found.append(f"files: {' '.join(sorted(_names(run) ^ _names(whole)))}")
    return found


def history(run: Path) -> list[dict[str, Any]]:
    """What was logged, without what a clock says."""
    state = json.loads((run / "trainer_state.json").read_text())
    return [_timeless(entry) for entry in state["log_history"]]


def results(run: Path) -> dict[str, Any]:
    """What was measured, without what a clock says."""
    return _timeless(json.loads((run / "all_results.json").read_text()))


def curve(run: Path) -> list[dict[str, Any]]:
    """The rows of the loss curve, without what a clock says."""
    with open(run / "loss_curve.csv", newline="") as file:
        return [_timeless(row) for row in csv.DictReader(file)]


def _timeless(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if not any(word in k for word in _OF_A_CLOCK)}


def _predictions(run: Path) -> dict[str, str]:
    folder = run / "predictions"
    return snapshot(folder) if folder.is_dir() else {}


def _names(run: Path) -> set[str]:
    """What lies in the folder of a run: nothing half-written is left behind."""
    return {path.name for path in run.iterdir()}


def _is_json(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_text()))
    except (OSError, ValueError):
        return False


def _is_model(run: Path) -> bool:
    try:
        for name in ("config.json", *_TOKENIZER_FILES):
            json.loads((run / name).read_text())
        with safe_open(run / "model.safetensors", framework="pt") as tensors:
            return bool(tensors.keys())
    except (OSError, ValueError, SafetensorError):
        return False
