"""The best checkpoint of a run is found where the run is now.

Trainer stores its path as it was: in a folder that was moved, or from another working directory, it
would be forgotten, and the last weights taken for the best ones.
"""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


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
    if state.best_model_checkpoint is None:
        return None
    best = checkpoint.parent / Path(state.best_model_checkpoint).name
    if best.is_dir():
        return str(best)
    if args.load_best_model_at_end:
        raise ValueError(
            f"cannot resume: {best}, the best checkpoint so far, is missing, and "
            "load_best_model_at_end asks for it; put it back, or choose another output_dir "
            "(nothing was changed)"
        )
    return None
