"""The trainer of classifiers: an evaluation loss that no batch size and no process changes."""

from typing import Any

import torch

from hf_linear_attn.training.trainer import RecipeTrainer


class ClassificationTrainer(RecipeTrainer):
    """`RecipeTrainer` with `eval_loss` from the logits of all rows, by `scores.TaskScores`.

    Transformers takes the mean of the batches' losses. On several processes the last batches are
    filled up with rows that were evaluated before; their predictions are dropped again, but a
    batch's loss cannot be taken apart.
    """

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[None, torch.Tensor | None, torch.Tensor | None]:
        """Trainer's step without its loss: `(None, (batch, classes), (batch,))`."""
        _, logits, labels = super().prediction_step(
            model, inputs, prediction_loss_only, ignore_keys
        )
        return None, logits, labels
