"""One figure from several seeds: mean ± deviation."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Mean and spread of a figure over seeds.

    Attributes:
        mean: of the values.
        deviation: sample standard deviation (n − 1); None for a single value, which has none, and
            where a value is NaN or infinite, as after training that has diverged.
        count: number of values.
    """

    mean: float
    deviation: float | None
    count: int

    def show(self, pattern: str = "{:.2f}", scale: float = 1.0) -> str:
        """As text, `mean ± deviation`; the mean alone where there is no deviation.

        Args:
            pattern: format of both numbers.
            scale: both are multiplied by it, 100 for per cent.
        """
        mean = pattern.format(self.mean * scale)
        if self.deviation is None:
            return mean
        return f"{mean} ± {pattern.format(self.deviation * scale)}"


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation; ValueError without a value."""
    if not values:
        raise ValueError("no value to take the mean of")
    if not all(map(math.isfinite, values)):
        return Spread(sum(values) / len(values), None, len(values))
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), deviation, len(values))
