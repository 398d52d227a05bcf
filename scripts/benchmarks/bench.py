"""What every suite is given: the settings of the run, the clock, and where results go."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.clock import Call, Clock
from benchmarks.results import Results
from benchmarks.rounds import Timings, interleave


@dataclass(frozen=True)
class Settings:
    """How a run is measured.

    Attributes:
        device: "cpu" or "cuda".
        dtype: of tensors and weights.
        rounds: counted ones.
        seed: of every tensor that is drawn, and of the order in each round.
        batch, heads, head_dim: of queries, keys and values; a layer is heads × head_dim wide.
        layers: of the whole models.
        lengths: in tokens, ascending; None = each suite's own.
        tokens: length of the text that suite decode generates.
        official: the official cosFormer layer's file.
    """

    device: torch.device
    dtype: torch.dtype
    rounds: int = 7
    seed: int = 0
    batch: int = 1
    heads: int = 12
    head_dim: int = 64
    layers: int = 12
    lengths: tuple[int, ...] | None = None
    tokens: int = 100_000
    official: Path | None = None

    @property
    def hidden(self) -> int:
        """Width of a layer."""
        return self.heads * self.head_dim

    def lengths_or(self, own: Sequence[int]) -> Sequence[int]:
        """The lengths that were asked for, else a suite's own."""
        return own if self.lengths is None else self.lengths


@dataclass(frozen=True)
class Bench:
    """Handed to each case.

    Attributes:
        settings: of the run.
        clock: of the device.
        results: to be filled.
        on_round: told the number of rounds that a case has done.
    """

    settings: Settings
    clock: Clock
    results: Results
    on_round: Callable[[int], None] = lambda done: None

    def race(self, calls: Mapping[str, Call]) -> Timings:
        """Time calls side by side; see `interleave`."""
        settings = self.settings
        return interleave(calls, self.clock, settings.rounds, self.on_round, settings.seed)

    def record_times(self, timings: Timings, key: str) -> None:
        """Keep the seconds of each contender, `{name}` in the key standing for its name."""
        for name in timings.seconds:
            self.results.times[key.format(name=name)] = timings.of(name)


@dataclass(frozen=True)
class Case:
    """A part of a suite that is measured by itself.

    Attributes:
        title: for the progress display.
        run: draws its tensors, measures, fills the results.
    """

    title: str
    run: Callable[[Bench], None]
