"""What an ablation shows: one table, as text, CSV and Markdown, and one plot."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table
from rich.text import Text

from hf_linear_attn.training.ablation_grid import Cell, Grid, Metric
from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.spread import spread

TABLE, PAGE, PLOT = "table.csv", "table.md", "plot.png"
"""What is written of an ablation."""

_NONE = "–"


@dataclass(frozen=True)
class CellResult:
    """What became of a cell's runs.

    Attributes:
        cell: its values.
        figures: the metric by seed, of the runs that are finished.
        failures: the reason by seed, of the runs that failed.
        baselines: the metric's baseline by seed, of the runs that are finished.
    """

    cell: Cell
    figures: dict[int, float]
    failures: dict[int, str]
    baselines: dict[int, float] = field(default_factory=dict)


def table_rows(grid: Grid, results: Sequence[CellResult]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the table: axes, mean ± deviation, seeds, what failed."""
    metric = grid.metric
    beside = [] if metric.baseline is None else [metric.baseline_label]
    columns = [axis.name for axis in grid.axes] + [metric.label, *beside, "seeds", "failed"]
    rows = []
    for result in results:
        shown = _shown(metric, result.figures)
        baseline = [] if metric.baseline is None else [_shown(metric, result.baselines)]
        done = ", ".join(map(str, result.figures)) or _NONE
        failed = ", ".join(map(str, result.failures)) or _NONE
        names = [value.name for value in result.cell]
        rows.append([*names, shown, *baseline, done, failed])
    return columns, rows


def _shown(metric: Metric, figures: Mapping[int, float]) -> str:
    if not figures:
        return _NONE
    return spread(list(figures.values())).show(metric.pattern, metric.scale)


def best_of(grid: Grid, results: Sequence[CellResult]) -> int | None:
    """Index of the cell with the best mean among those without a failure, None if there is none."""
    means = {
        i: spread(list(r.figures.values())).mean
        for i, r in enumerate(results)
        if r.figures and not r.failures
    }
    if not means:
        return None
    choose = max if grid.metric.greater_is_better else min
    return choose(means, key=lambda i: means[i])


def rich_table(grid: Grid, results: Sequence[CellResult]) -> Table:
    """The table for the screen; the best cell is bold."""
    columns, rows = table_rows(grid, results)
    better = "higher" if grid.metric.greater_is_better else "lower"
    caption = f"mean ± deviation; {better} is better, bold is best"
    # As texts: brackets in a name are no style.
    table = Table(title=Text(grid.title, style="table.title"), caption=caption)
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if i >= len(grid.axes) else "left")
    best = best_of(grid, results)
    for i, row in enumerate(rows):
        failed = bool(results[i].failures)
        table.add_row(*map(Text, row), style="bold" if i == best else "red" if failed else "")
    return table


def write_report(grid: Grid, results: Sequence[CellResult], folder: Path) -> None:
    """Write `table.csv`, `table.md` and `plot.png` into a folder that exists.

    The CSV has a line a run, with the figure as it was measured.
    """
    from matplotlib import rc_context

    write_atomically(folder / TABLE, _csv(grid, results))
    write_atomically(folder / PAGE, _markdown(grid, results))
    # A dollar sign in a name begins no formula.
    with rc_context({"text.parse_math": False}):
        _plot(grid, results, folder / PLOT)


def _csv(grid: Grid, results: Sequence[CellResult]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(axis.name for axis in grid.axes), "seed", grid.metric.key, "failure"])
    for result in results:
        names = [value.name for value in result.cell]
        for seed in sorted({*result.figures, *result.failures}):
            figure = result.figures.get(seed, "")
            writer.writerow([*names, seed, figure, result.failures.get(seed, "")])
    return text.getvalue()


def _markdown(grid: Grid, results: Sequence[CellResult]) -> str:
    columns, rows = table_rows(grid, results)
    best = best_of(grid, results)
    metric = len(grid.axes)
    lines = [f"# {grid.title}", "", _markdown_row(columns), "|" + "---|" * len(columns)]
    for i, row in enumerate(rows):
        row = [
            *row[:metric],
            f"**{row[metric]}**" if i == best else row[metric],
            *row[metric + 1 :],
        ]
        lines.append(_markdown_row(row))
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plot(grid: Grid, results: Sequence[CellResult], path: Path) -> None:
    """The first axis along x, the others one line a combination; bars are deviations."""
    # The object interface, not pyplot: no window system is looked for and no state is left.
    from matplotlib.figure import Figure

    names = [value.name for value in grid.axes[0].values]
    figure = Figure(figsize=(max(6.0, 1.4 * len(names) + 3), 4.2), layout="constrained")
    axes = figure.subplots()
    series: dict[str, list[CellResult]] = {}
    for result in results:
        series.setdefault(", ".join(v.name for v in result.cell[1:]), []).append(result)
    for i, (label, cells) in enumerate(series.items()):
        # Side by side, so that error bars do not hide one another.
        shift = 0.3 * (i - (len(series) - 1) / 2) / max(len(series), 1)
        _draw_series(axes, grid, names, cells, label, f"C{i}", shift)
    baselines = [value for result in results for value in result.baselines.values()]
    if baselines:
        _draw_baseline(axes, grid, spread(baselines).mean)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xlabel(grid.axes[0].name)
    axes.set_ylabel(grid.metric.label)
    axes.set_title(grid.title)
    axes.grid(alpha=0.3)
    if len(grid.axes) > 1:
        title = ", ".join(axis.name for axis in grid.axes[1:])
        figure.legend(title=title, loc="outside right upper")
    elif axes.get_legend_handles_labels()[1]:
        axes.legend()
    figure.savefig(path, dpi=120)


def _draw_baseline(axes, grid: Grid, value: float) -> None:
    """A line; far from the models, where it would press them together, in words."""
    level, label = value * grid.metric.scale, grid.metric.baseline_label
    low, high = axes.get_ylim()
    reach = 2 * (high - low)
    if low - reach <= level <= high + reach:
        axes.axhline(level, linestyle="--", color="grey", label=label)
        return
    above = level > high
    text = f"{'↑' if above else '↓'} {label}: {grid.metric.pattern.format(level)}"
    place = {"y": 0.97, "va": "top"} if above else {"y": 0.03, "va": "bottom"}
    axes.text(0.99, s=text, ha="right", color="grey", transform=axes.transAxes, **place)


def _draw_series(
    axes,
    grid: Grid,
    names: list[str],
    cells: list[CellResult],
    label: str,
    color: str,
    shift: float,
) -> None:
    places, means, bars = [], [], []
    for result in cells:
        if not result.figures:
            continue
        x = names.index(result.cell[0].name) + shift
        figures = [figure * grid.metric.scale for figure in result.figures.values()]
        axes.plot([x] * len(figures), figures, ".", color=color, alpha=0.4)
        places.append(x)
        means.append(spread(figures).mean)
        bars.append(spread(figures).deviation or 0.0)
    axes.errorbar(places, means, yerr=bars, fmt="o", color=color, capsize=4, label=label or None)
