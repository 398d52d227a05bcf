"""What the runs have measured, and its JSON form."""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints


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
    """What `Figures.as_json` wrote.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        experiments = {name: _experiment(each) for name, each in content["experiments"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file} does not hold the figures of this program ({type(error).__name__}: {error}); "
            "put back what it has written there, or delete it: the runs are read again"
        ) from error
    return Figures(experiments)


def _experiment(content: Mapping[str, Any]) -> ExperimentFigures:
    runs = [_typed(RunFigures, run) for run in content["runs"]]
    return _typed(ExperimentFigures, {**content, "runs": runs})


def _typed(made: type, fields: Mapping[str, Any]) -> Any:
    """A dataclass of values that have its types; a whole number is a float, too."""
    for name, kind in get_type_hints(made).items():
        if name in fields and not _fits(fields[name], kind):
            raise TypeError(f"{name} is {reprlib.repr(fields[name])}")
    return made(**fields)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(v, *get_args(kind)) for v in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(_fits(v, get_args(kind)[1]) for v in value.values())
    return type(value) in ((int, float) if kind is float else (kind,))
