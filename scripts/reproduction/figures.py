"""What the runs have measured, and its JSON form."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunFigures:
    """One finished run.

    Attributes:
        model: row of the grid.
        seed: of initial weights, data order and masks.
        perplexity: of the evaluation after training.
        loss: its logarithm, in nats a token.
        unigram_perplexity: of the unigram model on the same tokens.
        steps: optimiser steps.
        parameters: number of weights, tied ones counted once.
        predicted: tokens that the evaluation asks for.
        conditions: machine, threads and versions, as the run's own card has them.
    """

    model: str
    seed: int
    perplexity: float
    loss: float
    unigram_perplexity: float
    steps: int
    parameters: int
    predicted: int
    conditions: dict[str, str]


@dataclass
class ExperimentFigures:
    """What is known of an experiment.

    Attributes:
        runs: the finished ones.
        tokens_per_step: of a training step.
        step_seconds: CPU seconds of a training step by model, where steps follow from them.
        cpu_minutes: of one run by model: means over the runs for which they are known.
        data: what became of the texts, as the runs' cards have it.
    """

    runs: list[RunFigures] = field(default_factory=list)
    tokens_per_step: int = 0
    step_seconds: dict[str, float] = field(default_factory=dict)
    cpu_minutes: dict[str, float] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)

    def of(self, model: str) -> dict[int, RunFigures]:
        """The runs of a model, by seed."""
        return {run.seed: run for run in self.runs if run.model == model}


@dataclass
class Figures:
    """Everything the page is made of.

    Attributes:
        experiments: by name.
    """

    experiments: dict[str, ExperimentFigures] = field(default_factory=dict)

    def as_json(self) -> str:
        """JSON text, with runs in the order of the grid."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def read_figures(file: Path) -> Figures:
    """What `Figures.as_json` wrote."""
    content = json.loads(file.read_text(encoding="utf-8"))
    experiments = {name: _experiment(each) for name, each in content["experiments"].items()}
    return Figures(experiments)


def _experiment(content: Mapping[str, Any]) -> ExperimentFigures:
    runs = [RunFigures(**run) for run in content["runs"]]
    return ExperimentFigures(**{**content, "runs": runs})
