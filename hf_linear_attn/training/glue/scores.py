"""What an evaluation of a task measures, of a model and of one that has learnt nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp
from transformers import EvalPrediction

from hf_linear_attn.training.glue.tasks import Task


class TaskScores:
    """The task's metrics, and their mean as `score`, from logits and labels.

    Args:
        task: names the metrics and, of F1, the class.
        order: the classes as the model numbers them; none for a regression.
    """

    def __init__(self, task: Task, order: Sequence[str]) -> None:
        self.task = task
        # F1 is about a class by name, whatever its number is.
        self.positive = list(order).index(str(task.positive)) if "f1" in task.metrics else None

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Measure predictions of shape (rows, classes), or (rows, 1) of a regression.

        `loss` is the mean over the rows: cross-entropy in nats, or the squared error. Trainer
        lets it stand for its own, a mean over batches: on several processes the last ones are
        filled up with rows that were evaluated before, which a batch's loss cannot leave out.
        """
        logits = np.asarray(prediction.predictions, dtype=np.float64)
        labels = np.asarray(prediction.label_ids)
        if self.task.is_regression:
            guesses = logits.reshape(len(logits))
            loss = np.square(guesses - labels).mean()
        else:
            guesses = logits.argmax(axis=-1)
            right = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
            loss = np.mean(np.asarray(logsumexp(logits, axis=1)) - right)
        return {"loss": float(loss), **self.of_guesses(guesses, labels)}

    def of_guesses(self, guesses: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Measure classes or numbers (rows,) against the labels (rows,)."""
        from hf_linear_attn.training.glue.metrics import METRICS

        measured: dict[str, float] = {}
        for name in self.task.metrics:
            options: dict[str, Any] = {"positive": self.positive} if name == "f1" else {}
            metric = METRICS[name](keep_in_memory=True)
            measured |= metric.compute(predictions=guesses, references=labels, **options) or {}
        return {**measured, "score": float(np.mean([measured[n] for n in self.task.metrics]))}

    def of_constant(self, training: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """What the commonest class of the training rows reaches, or their mean."""
        return self.of_guesses(np.full(len(labels), self.constant(training)), labels)

    def constant(self, training: np.ndarray) -> int | float:
        """The commonest class of the training rows, or their mean."""
        if self.task.is_regression:
            return float(training.mean())
        return int(np.bincount(training).argmax())


def check_metrics(metrics: Sequence[str], order: Sequence[str]) -> None:
    """Raise ValueError for metrics that do not fit a regression, or so many classes."""
    of_numbers = {"pearson", "spearmanr"}
    for name in metrics:
        if (name in of_numbers) != (not order):
            kind = "a regression" if not order else "classes"
            raise ValueError(f"metrics: {name} does not fit {kind}; leave it out")
        if name == "f1" and len(order) != 2:
            raise ValueError(f"metrics: f1 is about one of two classes, but there are {len(order)}")
