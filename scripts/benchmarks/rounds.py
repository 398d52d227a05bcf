"""Interleaved rounds: what is compared is timed side by side, and ratios are taken a round.

A machine's speed drifts, by its temperature and by what else runs on it. Within a round everything
meets the same speed, so the ratio of a round holds, and the median of these ratios is the result.
"""

import gc
import math
import random
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
    calls: Mapping[str, Call],
    clock: Clock,
    rounds: int,
    on_round: Callable[[int], None],
    seed: int = 0,
) -> Timings:
    """Time every call once a round, after a round that is not counted.

    A call is slowed or helped by what ran before it, which leaves caches and free memory in some
    state. So the order of each round is drawn (see `orders`): it follows now this, now that one.

    Args:
        calls: by name.
        clock: measures a call.
        rounds: at least 1.
        on_round: told the number of rounds that are done, from 0 (the uncounted one).
        seed: of the orders.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with no_collection():
        # The very first call of anything pays for what is set up once; the second tells its length.
        for call in calls.values():
            call()
        repeats = {name: _repeats(clock.seconds(call, 1)) for name, call in calls.items()}
        on_round(0)
        for i, order in enumerate(orders(list(calls), rounds, seed)):
            gc.collect()
            for name in order:
                seconds[name].append(clock.seconds(calls[name], repeats[name]))
            on_round(i + 1)
    return Timings(seconds)


def orders(names: Sequence[str], rounds: int, seed: int) -> list[tuple[str, ...]]:
    """A random order of the names for each round.

    No order comes again before all have been: the rounds differ from one another, but where there
    are more of them than orders.
    """
    generator = random.Random(seed)
    possible = math.factorial(len(names))
    found: list[tuple[str, ...]] = []
    while len(found) < rounds:
        order = tuple(generator.sample(names, len(names)))
        # Those since all orders were last through.
        if order not in found[len(found) // possible * possible :]:
            found.append(order)
    return found


def _repeats(seconds: float) -> int:
    return max(1, math.ceil(SHORTEST_SAMPLE / max(seconds, 1e-6)))
