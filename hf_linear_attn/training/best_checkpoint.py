"""The best checkpoint of a run is found where the run is now, and looked at before it is loaded.

Trainer stores its path as it was: in a folder that was moved, or from another working directory, it
would be forgotten, and the last weights taken for the best ones. Nor does it see a flipped bit.
"""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_linear_attn.training.checkpoints import TRAINER_STATE_FILE
from hf_linear_attn.training.saved_files import (
    DamagedFileError,
    check_saved_model,
    read_json,
)

_ADVICE = (
    "put a sound one back, or give the same command with --load_best_model_at_end false, which "
    "keeps the last weights"
)


class BestCheckpoint(TrainerCallback):
    """Puts the best checkpoint's path right when a run goes on.

    Attributes:
        found: of `best_beside`; None where the run does not go on, or has none yet.
    """

    def __init__(self) -> None:
        self.found: str | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Over what Trainer has read, or dropped."""
        if self.found is not None:
            state.best_model_checkpoint = self.found


def best_beside(checkpoint: Path, state: TrainerState, args: TrainingArguments) -> str | None:
    """The path of the best checkpoint of a run, which lies beside the one it goes on from.

    Args:
        checkpoint: the run goes on from here.
        state: the one in it.
        args: of the run.

    Raises:
        ValueError: load_best_model_at_end asks for it, and it is not there.
    """
    best = _beside(checkpoint, state.best_model_checkpoint)
    if best is None or best.is_dir():
        return None if best is None else str(best)
    if args.load_best_model_at_end:
        raise ValueError(f"cannot resume: {_missing(best)} (nothing was changed)")
    return None


def check_best_beside(checkpoint: Path) -> None:
    """Look at the best checkpoint of a run, of which another one is to be resumed.

    Args:
        checkpoint: the run goes on from here; it is sound.

    Raises:
        ValueError: the best one is missing or damaged.
    """
    file = checkpoint / TRAINER_STATE_FILE
    stored = read_json(file).get("best_model_checkpoint")
    if stored is not None and not (isinstance(stored, str) and Path(stored).name):
        raise ValueError(
            f"cannot resume: {file} is damaged: best_model_checkpoint is {stored!r}; {_ADVICE} "
            "(nothing was changed)"
        )
    best = _beside(checkpoint, stored)
    if best is not None and best != checkpoint:
        _check(best, "cannot resume: {} (nothing was changed)")


def check_best(best: Path) -> None:
    """Look at the best checkpoint when training has ended, before its weights are loaded.

    Args:
        best: its folder.

    Raises:
        ValueError: it is missing or damaged.
    """
    _check(best, "the training is done, and {}; what it has saved so far stays as it is")


def _check(best: Path, sentence: str) -> None:
    if not best.is_dir():
        raise ValueError(sentence.format(_missing(best)))
    try:
        check_saved_model(best)
    except DamagedFileError as error:
        fault = (
            f"{error}; it is of the best checkpoint so far, which load_best_model_at_end asks for"
        )
        raise ValueError(sentence.format(f"{fault}: {_ADVICE}")) from error


def _beside(checkpoint: Path, stored: str | None) -> Path | None:
    return None if stored is None else checkpoint.parent / Path(stored).name


def _missing(best: Path) -> str:
    return (
        f"{best}, the best checkpoint so far, is missing, and load_best_model_at_end asks for it: "
        f"{_ADVICE}"
    )
