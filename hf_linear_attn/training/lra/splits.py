"""The three splits of a task's examples, as they are read or drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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

    Raises:
        ValueError: another number of labels than of examples.
    """

    rows: Sequence[tuple[np.ndarray, ...]]
    labels: np.ndarray

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.rows),):
            raise ValueError(
                f"got {len(self.rows):,} examples and labels of shape {self.labels.shape}, "
                "expected one label an example"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: np.ndarray) -> "RawSplit":
        """The examples of these numbers, in this order."""
        return RawSplit([self.rows[number] for number in chosen], self.labels[chosen])


def single(rows: Sequence[np.ndarray], labels: Sequence[int] | np.ndarray) -> RawSplit:
    """Examples of one tower."""
    return RawSplit([(row,) for row in rows], np.asarray(labels, dtype=np.int64))


def hold_out(
    split: RawSplit, shares: Sequence[float], source: Path, advice: str = ""
) -> list[RawSplit]:
    """Cut a split at random, always in the same way.

    Args:
        split: all examples.
        shares: of each part but the first, which gets the rest.
        source: where the examples come from, for the message.
        advice: what can be done beside giving more examples.

    Returns:
        The first part, then one for each share.

    Raises:
        ValueError: there are so few examples that a part would be empty.
    """
    order = np.random.default_rng(SPLIT_SEED).permutation(len(split))
    parts, begin = [], 0
    for share in shares:
        end = begin + round(share * len(split))
        parts.append(split.take(np.sort(order[begin:end])))
        begin = end
    parts.insert(0, split.take(np.sort(order[begin:])))
    if not all(map(len, parts)):
        raise ValueError(
            f"{source}: {len(split):,} examples are too few: {' and '.join(map(str, shares))} of "
            f"them are held out, and a split would be empty; give more examples{advice}"
        )
    return parts
