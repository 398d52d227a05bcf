"""The table over several runs, as text, file and plot, and published results beside it.

The score of a task is the mean of its metrics on the rows that count: the validation rows, of MNLI
the matched and the mismatched ones; of IMDB and Amazon the test rows where they were evaluated. The
average over the nine tasks is GLUE's.
"""

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from hf_linear_attn.training.atomic_files import replaced as written_anew
from hf_linear_attn.training.glue.report import (
    SAMPLE_NOTE,
    SAMPLE_SIGN,
    metric_prefix,
    metric_title,
)
from hf_linear_attn.training.glue.suite import PLOT, TABLE, Cell
from hf_linear_attn.training.glue.tasks import (
    EVALUATION_SPLITS,
    GLUE_TASKS,
    TASKS,
    TEST_SPLITS,
    find_task,
)
from hf_linear_attn.training.published import (
    PublishedTable,
    footnotes,
    printable_rows,
    published_table,
)
from hf_linear_attn.training.results_file import ResultsFile
from hf_linear_attn.training.spread import spread

# Which published table has models of that attention, and what its columns are in our words.
_PUBLISHED = {
    "cosformer": "glue_cosformer",
    "linear_transformer": "glue_cosformer",
    "softmax": "glue_cosformer",
    "transnormer": "glue_transnormer",
    "nystrom": "glue_nystromformer",
}
_MISMATCHED = "mnli_mm"


@dataclass(frozen=True)
class Line:
    """One metric of one task, over the seeds.

    Attributes:
        task: its name.
        split: whose rows were evaluated.
        metric: its name.
        values: by seed, in their order.
        baseline: of the constant answer, by seed.
        rows: how many were evaluated.
        is_sample: they are not all the official rows.
        positive: the class that F1 is about.
    """

    task: str
    split: str
    metric: str
    values: tuple[float, ...]
    baseline: tuple[float, ...]
    rows: int
    is_sample: bool = False
    positive: str | None = None


def read_lines(cells: Sequence[Cell]) -> list[Line]:
    """What the finished runs have measured, a line a metric.

    Raises:
        ValueError: a run's results are missing or damaged.
    """
    lines = []
    for name in dict.fromkeys(cell.task for cell in cells):
        mine = [cell for cell in cells if cell.task == name]
        results = [ResultsFile(cell.folder) for cell in mine]
        for each in results:
            each.get("eval_split", str)  # of every run: which rows were evaluated
        metrics = mine[0].args.task.metrics or _metrics(name, results[0])
        for prefix in map(metric_prefix, (*EVALUATION_SPLITS, *TEST_SPLITS)):
            if f"{prefix}_split" in results[0].content:
                lines += [_line(name, prefix, metric, results) for metric in metrics]
    return lines


def task_scores(lines: Sequence[Line]) -> dict[str, list[float]]:
    """The score of each task by seed: the mean of its metrics on the rows that count."""
    scores = {}
    for name in dict.fromkeys(line.task for line in lines):
        mine = [line.values for line in _that_count([li for li in lines if li.task == name])]
        scores[name] = [statistics.fmean(values) for values in zip(*mine, strict=True)]
    return scores


def suite_table(lines: Sequence[Line], seeds: Sequence[int]) -> Table:
    """Mean ± deviation of every metric, the constant answer beside it, and the average below."""
    title = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}: {', '.join(map(str, seeds))}"
    caption = (
        "per cent; mean ± sample standard deviation over seeds; constant: one answer to every row"
    )
    if any(line.is_sample for line in lines):
        caption += f"; {SAMPLE_NOTE}"
    table = Table(title=title, caption=caption)
    for column in ("task", "metric", "rows", "result", "constant"):
        table.add_column(column, justify="left" if column in ("task", "metric") else "right")
    for line in lines:
        table.add_row(
            line.task + _where(line.split),
            metric_title(line.metric, line.positive),
            f"{line.rows:,}{SAMPLE_SIGN * line.is_sample}",
            spread(line.values).show("{:.2f}", 100),
            spread([statistics.fmean(line.baseline)]).show("{:.2f}", 100),
        )
    scores, plain = task_scores(lines), task_scores(_baselines(lines))
    table.add_section()
    table.add_row(
        *_average_name(list(scores)),
        "",
        spread(_average(scores)).show("{:.2f}", 100),
        spread([statistics.fmean(_average(plain))]).show("{:.2f}", 100),
    )
    return table


def published(attention: str, lines: Sequence[Line]) -> tuple[Table, list[str]] | None:
    """The published results of models of that attention on these tasks, with their footnotes.

    They are of models pretrained and finetuned at full scale, on the validation rows of GLUE and
    the test rows of IMDB and Amazon: only what was evaluated on the same rows has its column. An
    average is shown only beside all that it is the average of. None where no column is left.
    """
    source: PublishedTable | None = None
    if attention in _PUBLISHED:
        source = published_table(_PUBLISHED[attention])
    if source is None:
        return None
    wanted = set(map(_column, (line for line in lines if line.split == _custom_split(line))))
    each = set(source.columns) - {"average"}
    if not wanted & each:
        return None
    wanted |= {"average"} if each <= wanted else set()
    kept = [n for n, column in enumerate(source.columns) if column in wanted]
    rows = printable_rows(source)
    table = Table(title=f"Published: {source.title}", caption=f"{source.metric}; {source.source}")
    table.add_column("model")
    for n in kept:
        table.add_column(source.columns[n], justify="right")
    for row in rows:
        table.add_row(row.name, *(row.cells[n] for n in kept))
    return table, footnotes(rows)


def write_results(folder: Path, lines: Sequence[Line], seeds: Sequence[int]) -> Path:
    """Write `results.csv`: a line a metric, a column a seed, all as fractions."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / TABLE
    with written_anew(target) as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = ["rows", "mean", "deviation", "constant", *(f"seed {seed}" for seed in seeds)]
        writer.writerow(["task", "split", "metric", *columns])
        for line in lines:
            over = spread(line.values)
            plain = statistics.fmean(line.baseline)
            rest = [line.rows, over.mean, over.deviation, plain, *line.values]
            writer.writerow([line.task, line.split, line.metric, *rest])
    return target


def draw_results(folder: Path, lines: Sequence[Line]) -> Path:
    """Write `results.png`: the score of each task beside the constant answer's."""
    from matplotlib.figure import Figure

    scores, plain = task_scores(lines), task_scores(_baselines(lines))
    spreads = [spread(values) for values in scores.values()]
    figure = Figure(figsize=(max(5, 0.9 * len(scores) + 2), 4), layout="constrained")
    axes = figure.subplots()
    places = range(len(scores))
    means = [100 * over.mean for over in spreads]
    bars = [100 * (over.deviation or 0) for over in spreads]
    axes.bar(places, means, 0.6, yerr=bars, capsize=3, label="model")
    for place, values in zip(places, plain.values(), strict=True):
        level = 100 * statistics.fmean(values)
        label = "constant answer" if place == 0 else "_nolegend_"
        axes.hlines(level, place - 0.4, place + 0.4, "black", "dashed", label=label)
    axes.set_xticks(places, list(scores))
    axes.set_ylabel("score (%)")
    axes.legend()
    target = folder / PLOT
    with written_anew(target) as path:
        figure.savefig(path, format="png", dpi=120)
    return target


def _line(name: str, prefix: str, metric: str, results: Sequence[ResultsFile]) -> Line:
    first = results[0]
    named = first.content.get("positive_class") is not None
    return Line(
        name,
        first.get(f"{prefix}_split", str),
        metric,
        tuple(r.get(f"{prefix}_{metric}", float) for r in results),
        tuple(r.get(f"{prefix}_baseline_{metric}", float) for r in results),
        first.get(f"{prefix}_rows", int),
        first.get(f"{prefix}_is_sample", bool),
        first.get("positive_class", str) if named else None,
    )


def _metrics(name: str, results: ResultsFile) -> Sequence[str]:
    """The metrics of a task; of a custom one those that were measured."""
    if name != "custom":
        return find_task(name).metrics
    start = "eval_baseline_"
    known = [key.removeprefix(start) for key in results.content if key.startswith(start)]
    metrics = [metric for metric in known if metric != "score"]
    if not metrics:
        raise results.refusal(f"{results.file} names no metric")
    return metrics


def _where(split: str) -> str:
    """What is said of a split beside the task's name; the validation rows are the usual ones."""
    if split == "validation":
        return ""
    return f" ({split.removeprefix('validation_').replace('_', ' ')})"


def _custom_split(line: Line) -> str:
    """The rows on which results of the task are given by custom."""
    if line.task in TASKS and TASKS[line.task].test_is_evaluation:
        return "test"
    return line.split if line.split.startswith("validation") else "validation"


def _that_count(lines: Sequence[Line]) -> Sequence[Line]:
    """Of the lines of one task those on the customary rows, or else on the first ones."""
    usual = [line for line in lines if line.split == _custom_split(line)]
    return usual or [line for line in lines if line.split == lines[0].split]


def _column(line: Line) -> str:
    return _MISMATCHED if line.split == "validation_mismatched" else line.task


def _baselines(lines: Sequence[Line]) -> list[Line]:
    return [replace(line, values=line.baseline) for line in lines]


def _average(scores: Mapping[str, Sequence[float]]) -> list[float]:
    return [statistics.fmean(values) for values in zip(*scores.values(), strict=True)]


def _average_name(names: Sequence[str]) -> tuple[str, str]:
    if set(names) == set(GLUE_TASKS):
        return "GLUE average", "mean of the nine scores"
    return "average", f"mean of the {len(names)} scores" if len(names) > 1 else "score"
