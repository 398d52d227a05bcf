"""Interleaved rounds: what is compared is timed side by side, and ratios are taken a round.

A machine's speed drifts, by its temperature and by what else runs on it. Within a round everything
meets the same speed, so the ratio of a round holds, and the median of these ratios is the result.
"""

import gc
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.clock import Call, Clock
from benchmarks.garbage import no_collection

# A sample of a short call is many calls in a row: of one alone the clock and the loop are a part.
SHORTEST_SAMPLE = 0.02


@dataclass(frozen=True)
class Quartiles:
    """Median and spread of a figure over rounds."""

    lower: float
    median: float
    upper: float

    def scaled(self, factor: float) -> "Quartiles":
        """The figure in another unit."""
        return Quartiles(self.lower * factor, self.median * factor, self.upper * factor)


def quartiles(values: Sequence[float]) -> Quartiles:
    """Quartiles by linear interpolation between the ordered values; a single value is all three."""
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


@dataclass(frozen=True)
class Timings:
    """Seconds of each contender, a value a round.

    Attributes:
        seconds: by name; all of one length, in the order of the rounds.
    """

    seconds: Mapping[str, Sequence[float]]

    def of(self, name: str) -> Quartiles:
        """Seconds of one contender."""
        return quartiles(self.seconds[name])

    def ratio(self, top: str, bottom: str) -> Quartiles:
        """Time of `top` over time of `bottom`, paired by round."""
        pairs = zip(self.seconds[top], self.seconds[bottom], strict=True)
        return quartiles([a / b for a, b in pairs])


def interleave(
    calls: Mapping[str, Call], clock: Clock, rounds: int, on_round: Callable[[int], None]
) -> Timings:
    """Time every call once a round, after a round that is not counted.

    Each round begins with another contender, so that nobody always runs behind the same one.

    Args:
        calls: by name.
        clock: measures a call.
        rounds: at least 1.
        on_round: told the number of rounds that are done, from 0 (the uncounted one).
    """
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with no_collection():
        # The very first call of anything pays for what is set up once; the second tells its length.
        for name in names:
            calls[name]()
        repeats = {name: _repeats(clock.seconds(calls[name], 1)) for name in names}
        on_round(0)
        for i in range(rounds):
            gc.collect()
            for name in names[i % len(names) :] + names[: i % len(names)]:
                seconds[name].append(clock.seconds(calls[name], repeats[name]))
            on_round(i + 1)
    return Timings(seconds)


def _repeats(seconds: float) -> int:
    return max(1, math.ceil(SHORTEST_SAMPLE / max(seconds, 1e-6)))
