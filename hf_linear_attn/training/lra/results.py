"""What a run has measured, and its table beside the published rows of the same protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hf_linear_attn.training.lra.data import CHANCE
from hf_linear_attn.training.lra.presets import PRESETS, Preset
from hf_linear_attn.training.lra.tasks import TASKS
from hf_linear_attn.training.published import (
    PublishedTable,
    footnotes,
    printable_rows,
    published_tables,
)
from hf_linear_attn.training.results_file import ResultsFile

AVERAGED = ("listops", "text", "retrieval", "image", "pathfinder")
"""The tasks of a published average; Path-X is not among them."""
_AVERAGE = "average"
_NOTHING = "–"
# Short ones, for a terminal of 80 columns.
_HEADINGS = {name: task.title for name, task in TASKS.items()} | {
    "retrieval": "Retr.",
    "pathfinder": "Path.",
    _AVERAGE: "Avg",
}


@dataclass(frozen=True)
class LraResults:
    """What a run has measured; stored in `all_results.json` under these names.

    Attributes:
        task, preset, attention: of the run.
        test_accuracy: of the checkpoint that was best on the validation split, tested once.
        best_validation_accuracy: what that checkpoint had there.
        best_step: its optimiser step.
        chance_level: accuracy of the training split's most frequent label on the test split.
        test_examples: number of test examples that were tested, each of which counts.
        test_examples_there: number of test examples that there are.
        over_long_train, over_long_validation, over_long_test: examples longer than the limit.
        over_long_rule: what became of them.
        parameters: number of weights.
        steps: optimiser steps in all.
        data: where the examples come from, with the difficulty of Pathfinder's.
        differences: what is not as the preset's results were published, one text each.
    """

    task: str
    preset: str
    attention: str
    test_accuracy: float
    best_validation_accuracy: float
    best_step: int
    chance_level: float
    test_examples: int
    test_examples_there: int
    over_long_train: int
    over_long_validation: int
    over_long_test: int
    over_long_rule: str
    parameters: int
    steps: int
    data: str
    differences: list[str]

    @property
    def tested(self) -> str:
        """How many test examples, and of how many."""
        if self.test_examples == self.test_examples_there:
            return f"all {self.test_examples:,} test examples"
        return f"{self.test_examples:,} of {self.test_examples_there:,} test examples"

    def stored(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def read_results(folder: Path) -> LraResults:
    """The results of a finished run.

    Raises:
        ValueError: the folder holds none, or they are damaged.
    """
    file = ResultsFile(folder)
    found = {name: _field(file, name, kind) for name, kind in get_type_hints(LraResults).items()}
    if found["preset"] not in PRESETS:
        raise file.wrong("preset", f"one of {', '.join(PRESETS)}")
    return LraResults(**found)


def _field(file: ResultsFile, name: str, kind: Any) -> Any:
    if kind != list[str]:
        return file.get(name, kind)
    found = file.get(name, list)
    if not all(isinstance(item, str) for item in found):
        raise file.wrong(name, "a list of texts")
    return found


def published_of(preset: Preset) -> list[PublishedTable]:
    """The published tables of a preset's own harness; those of others are never beside it."""
    return [
        table
        for table in published_tables().values()
        if table.harness == preset.harness and set(AVERAGED) <= set(table.columns)
    ]


def columns_of(results: Mapping[str, LraResults]) -> list[str]:
    """Tasks that were run, in the published order, and the average where all of it is there."""
    tasks = [task for task in TASKS if task in results]
    return [*tasks, _AVERAGE] if set(AVERAGED) <= set(tasks) else tasks


def own_rows(results: Mapping[str, LraResults]) -> list[list[str]]:
    """Accuracy and chance level in per cent: a name and one cell a column."""
    columns = columns_of(results)
    attention = next(iter(results.values())).attention
    accuracy = {task: 100 * result.test_accuracy for task, result in results.items()}
    chance = {task: 100 * result.chance_level for task, result in results.items()}
    return [
        [f"{attention} (here)", *_cells(accuracy, columns)],
        ["chance level (here)", *_cells(chance, columns)],
    ]


def results_table(results: Mapping[str, LraResults]) -> Table:
    """The table of one task or of several of one preset.

    Args:
        results: by task.

    Raises:
        ValueError: results of two presets.
    """
    presets = {result.preset for result in results.values()}
    if len(presets) != 1:
        raise ValueError(f"results of the presets {' and '.join(sorted(presets))} are not compared")
    preset, columns = PRESETS[presets.pop()], columns_of(results)
    table = Table(
        title=f"Long Range Arena, test accuracy (%), preset {preset.name}",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("")
    for column in columns:
        table.add_column(_HEADINGS.get(column, column), justify="right")
    for row in own_rows(results):
        table.add_row(*row)
    table.add_section()
    for name, cells in published_cells(preset, columns):
        table.add_row(name, *cells)
    return table


def show_results(console: Console, results: Mapping[str, LraResults]) -> None:
    """Print the table and what stands below it."""
    console.print(results_table(results))
    for line in notes(results):
        console.print(Text(line), soft_wrap=True)


def published_cells(preset: Preset, columns: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The published rows that may be printed, of these columns alone."""
    found = []
    for table in published_of(preset):
        for row in printable_rows(table):
            by_column = dict(zip(table.columns, row.cells, strict=True))
            cells = [by_column.get(column, _NOTHING) for column in columns]
            if any(cell != _NOTHING for cell in cells):
                found.append((row.name, cells))
    return found


def notes(results: Mapping[str, LraResults]) -> list[str]:
    """What stands below the table, a line each."""
    preset = PRESETS[next(iter(results.values())).preset]
    lines = [
        "here: the checkpoint best on the validation split, tested once: "
        + ", ".join(f"{TASKS[task].title} on {result.tested}" for task, result in results.items()),
        f"chance level: {CHANCE}; published: {preset.title}",
    ]
    for task, result in results.items():
        longer = result.over_long_train + result.over_long_validation + result.over_long_test
        if longer:
            became = "cut" if result.over_long_rule == "cut" else "left out"
            lines.append(f"{TASKS[task].title}: {longer:,} over-long examples were {became}")
        lines.append(f"{TASKS[task].title}: {result.data}")
        if result.differences:
            lines.append(
                f"{TASKS[task].title} is not as published: {'; '.join(result.differences)}"
            )
    return [*lines, *footnotes(printable_rows(*published_of(preset)))]


def _cells(values: Mapping[str, float], columns: Sequence[str]) -> list[str]:
    mean = sum(values.get(task, 0.0) for task in AVERAGED) / len(AVERAGED)
    return [f"{mean if column == _AVERAGE else values[column]:.2f}" for column in columns]
