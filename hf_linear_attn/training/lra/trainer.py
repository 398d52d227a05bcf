"""Trainer, collator and accuracy of the Long Range Arena classifiers."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import EvalPrediction, TrainerCallback, TrainingArguments

from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.training.lra.data import LraData
from hf_linear_attn.training.lra.examples import TOWER_COLUMNS
from hf_linear_attn.training.lra.schedules import build_schedule
from hf_linear_attn.training.trainer import RecipeTrainer


class LraCollator:
    """Batches of examples, padded on the right; what is padding the mask says, not the ids.

    Args:
        pad: id of padding; None where all examples are of one length.
        towers: sequences in an example.
    """

    def __init__(self, pad: int | None, towers: int) -> None:
        self.pad = pad
        self.columns = TOWER_COLUMNS[:towers]

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Rows of `Examples.dataset` -> ids and mask (batch, [towers,] seq), labels (batch,)."""
        longest = max(len(row[column]) for row in rows for column in self.columns)
        ids = np.full((len(rows), len(self.columns), longest), self.pad or 0, dtype=np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            for tower, column in enumerate(self.columns):
                ids[number, tower, : len(row[column])] = row[column]
                mask[number, tower, : len(row[column])] = 1
        if len(self.columns) == 1:
            ids, mask = ids[:, 0], mask[:, 0]
        return {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask),
            "labels": torch.tensor([int(row["labels"]) for row in rows]),
        }


def measure(prediction: EvalPrediction) -> dict[str, float]:
    """Mean cross-entropy (nats) of all rows, and share of those whose greatest logit is right.

    Args:
        prediction: logits (rows, classes) and labels (rows,), each row once.
    """
    logits = torch.as_tensor(np.asarray(prediction.predictions)).double()
    labels = torch.as_tensor(np.asarray(prediction.label_ids)).long()
    return {
        "loss": float(F.cross_entropy(logits, labels)),
        "accuracy": float((logits.argmax(-1) == labels).double().mean()),
    }


class LraTrainer(RecipeTrainer):
    """Trains a Long Range Arena classifier; evaluations carry `eval_accuracy`.

    Loss and accuracy of an evaluation are those of all rows, each counted once: a mean of batches'
    means would depend on their size and on the number of processes.

    Args:
        model: the classifier.
        args: Transformers' training arguments.
        data: of its task.
        schedule: name of one of `schedules`, or None = `lr_scheduler_type`.
        callbacks: further ones.

    Raises:
        ValueError: for label smoothing, which the loss does not have.
    """

    def __init__(
        self,
        model: LraForSequenceClassification,
        args: TrainingArguments,
        data: LraData,
        schedule: str | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        if args.label_smoothing_factor:
            raise ValueError(
                f"label_smoothing_factor {args.label_smoothing_factor} is not supported: the loss "
                "of Long Range Arena has none; leave it at 0"
            )
        self.schedule = schedule
        super().__init__(
            model,
            args,
            data_collator=LraCollator(data.task.symbols.pad, data.task.towers),
            train_dataset=data.splits["train"].dataset,
            eval_dataset=data.splits["validation"].dataset,
            compute_metrics=measure,
            callbacks=callbacks,
        )

    def create_scheduler(
        self, num_training_steps: int, optimizer: Optimizer | None = None
    ) -> LRScheduler:
        """Trainer's, or that of the harness."""
        used = cast(Optimizer | None, self.optimizer if optimizer is None else optimizer)
        if self.schedule is not None and self.lr_scheduler is None and used is not None:
            warmup = self.args.get_warmup_steps(num_training_steps)
            self.lr_scheduler = build_schedule(self.schedule, used, warmup, num_training_steps)
        return super().create_scheduler(num_training_steps, optimizer)

    def real_tokens(self, inputs: dict[str, Any]) -> torch.Tensor:
        """The mask, (towers of all examples, seq)."""
        return inputs["attention_mask"].flatten(0, -2)

    def prediction_step(self, *args: Any, **kwargs: Any) -> tuple[None, Any, Any]:
        """Trainer's step without the loss, which is computed of all rows at the end."""
        _, logits, labels = super().prediction_step(*args, **kwargs)
        return None, logits, labels

    def _set_signature_columns_if_needed(self) -> None:
        # What the collator reads.
        self._signature_columns = [*TOWER_COLUMNS, "labels"]
