"""The three splits of a task's examples, as they are read or drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SPLITS = ("train", "validation", "test")
# Of splits that the data themselves do not say: the same in every run, whatever its seed.
SPLIT_SEED = 0


@dataclass(frozen=True)
class RawSplit:
    """Examples before they are cut.

    Attributes:
        rows: ids of each example, one array for each tower: `rows[example][tower]`.
        labels: int64 (examples,).
    """

    rows: Sequence[tuple[np.ndarray, ...]]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: np.ndarray) -> "RawSplit":
        """The examples of these numbers, in this order."""
        return RawSplit([self.rows[number] for number in chosen], self.labels[chosen])


def single(rows: Sequence[np.ndarray], labels: Sequence[int] | np.ndarray) -> RawSplit:
    """Examples of one tower."""
    return RawSplit([(row,) for row in rows], np.asarray(labels, dtype=np.int64))


def hold_out(split: RawSplit, shares: Sequence[float]) -> list[RawSplit]:
    """Cut a split at random, always in the same way.

    Args:
        split: all examples.
        shares: of each part but the first, which gets the rest.

    Returns:
        The first part, then one for each share.
    """
    order = np.random.default_rng(SPLIT_SEED).permutation(len(split))
    parts, begin = [], 0
    for share in shares:
        end = begin + round(share * len(split))
        parts.append(split.take(np.sort(order[begin:end])))
        begin = end
    return [split.take(np.sort(order[begin:])), *parts]
