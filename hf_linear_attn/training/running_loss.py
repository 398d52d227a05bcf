"""The training loss since the last log survives in a checkpoint.

Trainer forgets it: a run that goes on between two logs would report the mean of fewer steps.
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

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take up the sum; a checkpoint of something that keeps none starts at 0, as Trainer."""
        if self.resumed_from is None or not (file := _file(self.resumed_from, args)).is_file():
            return
        kept = json.loads(file.read_text(encoding="utf-8"))
        self.trainer._tr_loss = torch.tensor(kept["loss"], device=args.device)
        self.trainer._globalstep_last_logged = kept["last_logged"]

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the sum beside the other files of the checkpoint."""
        trainer = self.trainer
        kept = {
            "loss": trainer._tr_loss.item(),
            "last_logged": trainer._globalstep_last_logged,
        }
        checkpoint = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        write_atomically(_file(checkpoint, args), json.dumps(kept) + "\n")


def _file(checkpoint: Path, args: TrainingArguments) -> Path:
    return checkpoint / f"running_loss_{args.process_index}.json"
