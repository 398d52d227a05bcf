"""From what was read to what is trained on: chosen, cut by a stated rule, counted, checked."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hf_linear_attn.training.lra.splits import SPLIT_SEED, RawSplit
from hf_linear_attn.training.lra.tasks import LraTask

if TYPE_CHECKING:
    from datasets import Dataset

TOWER_COLUMNS = ("input_ids", "input_ids_2")
"""Ids of the first and the second sequence of an example."""


@dataclass(frozen=True)
class Examples:
    """One split.

    Attributes:
        dataset: columns of `TOWER_COLUMNS`, one for each tower, and `labels`; numpy rows.
        labels: int64 (examples,), the same.
        over_long: how many examples were longer than the limit.
        dropped: how many of them are not among the rows.
        available: how many there were to choose from.
    """

    dataset: "Dataset"
    labels: np.ndarray
    over_long: int
    dropped: int
    available: int

    def __len__(self) -> int:
        return len(self.labels)


def build_examples(
    name: str, split: RawSplit, task: LraTask, max_length: int, rule: str, limit: int | None
) -> Examples:
    """Choose, cut or drop, and check one split.

    Args:
        name: of the split, for messages.
        split: what was read.
        task: says how many towers and classes there are.
        max_length: longest tower, in symbols.
        rule: for longer ones: "cut", "drop" or "refuse".
        limit: number of examples to choose at random, always the same ones; None = all.

    Raises:
        ValueError: a longer example under "refuse", nothing left, an empty example, or a label
            that is no class.
    """
    available = len(split)
    if limit is not None and limit < available:
        order = np.random.default_rng(SPLIT_SEED).permutation(available)
        split = split.take(np.sort(order[:limit]))
    longer = _longer(name, split, task, max_length, rule)
    if rule == "drop":
        split = split.take(np.flatnonzero(~longer))
        if not len(split):
            raise ValueError(
                f"{task.name}, {name}: no example is left, as all {len(longer):,} have more than "
                f"{max_length:,} symbols; raise max_length"
            )
    _check_labels(name, split.labels, task)
    columns = {
        column: _ragged([row[tower][:max_length] for row in split.rows])
        for tower, column in enumerate(TOWER_COLUMNS[: task.towers])
    }
    dropped = int(longer.sum()) if rule == "drop" else 0
    dataset = _dataset(columns, split.labels)
    return Examples(dataset, split.labels, int(longer.sum()), dropped, available)


def fingerprint(examples: Examples) -> str:
    """A BLAKE2b digest of all ids and labels, in order, in hexadecimal digits."""
    digest = hashlib.blake2b(examples.labels.astype("<i8").tobytes(), digest_size=16)
    table = examples.dataset.data.table
    for column in TOWER_COLUMNS:
        if column in table.column_names:
            rows = table[column].combine_chunks()
            digest.update(rows.value_lengths().to_numpy().astype("<i8").tobytes())
            digest.update(rows.flatten().to_numpy().astype("<u2").tobytes())
    return digest.hexdigest()


def _longer(name: str, split: RawSplit, task: LraTask, max_length: int, rule: str) -> np.ndarray:
    """Bool (examples,): which are over the limit; an empty one, or none at all, is refused."""
    if not len(split):
        raise ValueError(f"{task.name}, {name}: there is no example")
    lengths = np.array([[len(tower) for tower in row] for row in split.rows])
    if not lengths.all():
        row = int(np.argwhere(lengths == 0)[0, 0])
        raise ValueError(f"{task.name}, {name}: example {row} is empty")
    longer = np.logical_or.reduce(lengths > max_length, axis=1)
    if longer.any() and rule == "refuse":
        raise ValueError(
            f"{task.name}, {name}: {longer.sum():,} of {len(split):,} examples have more than "
            f"{max_length:,} symbols, the longest {lengths.max():,}; raise max_length, or say what "
            "becomes of them with over_long (cut or drop)"
        )
    return longer


def _check_labels(name: str, labels: np.ndarray, task: LraTask) -> None:
    wrong = (labels < 0) | (labels >= len(task.classes))
    if wrong.any():
        raise ValueError(
            f"{task.name}, {name}: got the label {labels[wrong][0]}, expected 0 to "
            f"{len(task.classes) - 1}"
        )
    if name == "train" and len(np.unique(labels)) == 1:
        raise ValueError(
            f"{task.name}: all {len(labels):,} training examples have the label {labels[0]}: there "
            "is nothing to learn; give examples of two classes or more"
        )


def _ragged(rows: Sequence[np.ndarray]):
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), np.concatenate(rows))


def _dataset(columns: dict, labels: np.ndarray) -> "Dataset":
    import pyarrow as pa
    from datasets import Dataset

    return Dataset(pa.table({**columns, "labels": labels})).with_format("numpy")
