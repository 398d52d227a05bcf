"""The training loss, since the last log and of all steps, survives in a checkpoint.

Trainer forgets it: a run that goes on between two logs would report the mean of fewer steps, and at
its end the mean of the steps since the break.
"""

import json
import weakref
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.checkpoints import checkpoint_steps


class RunningLoss(TrainerCallback):
    """Keeps, in each checkpoint, what every process has summed since the last log.

    Args:
        trainer: whose loss it is; `resumed_from` names the checkpoint it goes on from, or None.
    """

    def __init__(self, trainer: Trainer) -> None:
        # Weakly: in a circle with its callback a trainer, and the workers of its loaders, would
        # live on until a garbage collection, which then waits for each of them.
        self.trainer: Trainer = weakref.proxy(trainer)
        self.resumed_from: Path | None = None
        self._first_step = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take up the sums; a checkpoint of something that keeps none starts at 0, as Trainer."""
        kept = None if self.resumed_from is None else _read(self.resumed_from, args)
        self._first_step = state.global_step if kept is None else 0
        if kept is None:
            return
        self.trainer._tr_loss = torch.tensor(kept["loss"], device=args.device)
        self.trainer._globalstep_last_logged = kept["last_logged"]
        self.trainer._total_loss_scalar = kept["logged"]

    def mean(self) -> float:
        """The mean loss of all steps of the run that is ending, whatever the breaks in it."""
        steps = self.trainer.state.global_step - self._first_step
        return self.trainer._total_loss_scalar / max(steps, 1)

    def mean_at(self, checkpoint: Path) -> float | None:
        """The mean loss of all steps up to a checkpoint; None if it keeps no sums."""
        kept = _read(checkpoint, self.trainer.args)
        steps = checkpoint_steps(checkpoint)
        return None if kept is None else (kept["logged"] + kept["loss"]) / max(steps, 1)

    def write(self) -> None:
        """Write the sum where the checkpoint is going to be.

        It is there before Trainer's state, which Trainer writes last of its own files and by which
        a checkpoint counts as whole.
        """
        trainer, args = self.trainer, self.trainer.args
        kept = {
            "loss": trainer._tr_loss.item(),
            "last_logged": trainer._globalstep_last_logged,
            "logged": trainer._total_loss_scalar,
        }
        checkpoint = Path(str(args.output_dir)) / f"checkpoint-{trainer.state.global_step}"
        checkpoint.mkdir(parents=True, exist_ok=True)
        write_atomically(_file(checkpoint, args), json.dumps(kept) + "\n")


def _read(checkpoint: Path, args: TrainingArguments) -> dict[str, Any] | None:
    file = _file(checkpoint, args)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _file(checkpoint: Path, args: TrainingArguments) -> Path:
    return checkpoint / f"running_loss_{args.process_index}.json"
