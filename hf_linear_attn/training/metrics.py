"""What a language model's evaluation means: exact means, and the unigram model beside it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

IGNORED = -100
_ROWS_AT_ONCE = 1000


def token_counts(dataset: Any, vocab_size: int) -> np.ndarray:
    """How often each token id occurs in the column `input_ids`, int64 `(vocab_size,)`.

    Args:
        dataset: a `datasets.Dataset` or `IterableDataset`, read once from beginning to end.
        vocab_size: number of ids; a larger id raises ValueError.
    """
    counts = np.zeros(vocab_size, dtype=np.int64)
    for ids in _flat_columns(dataset, "input_ids"):
        if len(ids) and ids.max() >= vocab_size:
            raise ValueError(f"token id {ids.max()} lies outside the vocabulary of {vocab_size}")
        counts += np.bincount(ids, minlength=vocab_size)
    return counts


@dataclass(frozen=True)
class Unigram:
    """What a model reaches that knows nothing but how frequent each token is.

    Attributes:
        loss: cross-entropy in nats.
        accuracy: share of tokens that are the most frequent one.
        tokens: number of predicted tokens it was measured on.
    """

    loss: float
    accuracy: float
    tokens: int


def unigram_baseline(counts: np.ndarray, special_ids: list[int], evaluation: Any) -> Unigram:
    """Measure the training tokens' frequencies on the evaluation tokens that are predicted.

    The distribution is smoothed by one count a token and covers all tokens but the special ones.

    Args:
        counts: of the training tokens, `(vocab_size,)`.
        special_ids: left out of the distribution; they are never predicted.
        evaluation: rows with a column `labels`, -100 where nothing is predicted.

    Raises:
        ValueError: when no evaluation token is to be predicted.
    """
    smoothed = counts.astype(np.float64) + 1
    smoothed[list(set(special_ids))] = 0
    targets = np.zeros(len(counts), dtype=np.int64)
    for labels in _flat_columns(evaluation, "labels"):
        targets += np.bincount(labels[labels != IGNORED], minlength=len(counts))
    total = int(targets.sum())
    if not total:
        raise ValueError("the evaluation data has no token to predict")
    seen = targets > 0
    if (smoothed[seen] == 0).any():
        wrong = np.flatnonzero(seen & (smoothed == 0)).tolist()
        raise ValueError(f"the evaluation data predicts special tokens, of ids {wrong}")
    nll = np.log(smoothed.sum()) - np.log(smoothed[seen])
    return Unigram(
        loss=float((targets[seen] * nll).sum() / total),
        accuracy=float(targets[smoothed.argmax()] / total),
        tokens=total,
    )


def row_statistics(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Summed loss, right answers and predicted tokens of each row, fp32 `(batch, 3)`.

    Args:
        logits: `(predicted tokens, vocab_size)` of the tokens with a label, in row-major order.
        labels: `(batch, seq)`, -100 where nothing is predicted.
    """
    targets = labels[labels != IGNORED]
    rows = (labels != IGNORED).nonzero()[:, 0]
    nll = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
    right = (logits.argmax(-1) == targets).float()
    each = torch.stack([nll, right, torch.ones_like(nll)], dim=1)
    return each.new_zeros(len(labels), 3).index_add_(0, rows, each)


class LanguageModelMetrics:
    """Turns row statistics into `loss`, `perplexity`, an accuracy and `unigram_loss`.

    The loss is the summed loss of all predicted tokens over their number: a mean over tokens, not
    over batches, so neither batch size nor number of processes changes it.

    Args:
        unigram_loss: cross-entropy of the unigram model on the same tokens, in nats; None leaves
            it out.
        accuracy_name: what the share of right first guesses is called.
    """

    def __init__(self, unigram_loss: float | None = None, accuracy_name: str = "accuracy") -> None:
        self.unigram_loss = unigram_loss
        self.accuracy_name = accuracy_name

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Reduce predictions of shape `(rows, 3)`, or a list of such batches."""
        batches = prediction.predictions
        rows = np.concatenate(batches) if isinstance(batches, list) else np.asarray(batches)
        nll, right, predicted = rows.astype(np.float64).sum(axis=0)
        if not predicted:
            raise ValueError("the evaluation data has no token to predict")
        metrics = {
            "loss": nll / predicted,
            "perplexity": perplexity(nll / predicted),
            self.accuracy_name: right / predicted,
        }
        if self.unigram_loss is not None:
            metrics["unigram_loss"] = self.unigram_loss
            metrics["unigram_perplexity"] = perplexity(self.unigram_loss)
        return metrics


def perplexity(loss: float) -> float:
    """exp(loss), infinite where it leaves the range of a float."""
    return math.exp(loss) if loss < 700 else math.inf


def _flat_columns(dataset: Any, column: str) -> Iterator[np.ndarray]:
    """The column's values of many rows at once, as flat int64 arrays."""
    tables = dataset.select_columns(column).with_format("arrow").iter(_ROWS_AT_ONCE)
    for table in tables:
        for chunk in table[column].chunks:
            yield chunk.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
