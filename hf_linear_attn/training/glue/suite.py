"""Several tasks and seeds: which runs they are, and the table over them.

Each run lives in a folder of its own, `<task>/seed-<seed>`; what is finished is only read. The
score of a task is the mean of its metrics, of MNLI the mean over matched and mismatched rows; the
average over the nine tasks is GLUE's.
"""

import csv
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.glue.report import metric_prefix
from hf_linear_attn.training.glue.tasks import EVALUATION_SPLITS, GLUE_TASKS, TASKS, find_task
from hf_linear_attn.training.published import (
    PublishedTable,
    footnotes,
    printable_rows,
    published_table,
)
from hf_linear_attn.training.run_folder import RUN_FILE
from hf_linear_attn.training.spread import spread

RESULTS_FILE = "all_results.json"
_FROM_MNLI = ("mrpc", "rte", "stsb")
# Which published table has models of that attention, and what its columns are in our words.
_PUBLISHED = {
    "cosformer": "glue_cosformer",
    "linear_transformer": "glue_cosformer",
    "softmax": "glue_cosformer",
    "transnormer": "glue_transnormer",
    "nystrom": "glue_nystromformer",
}


@dataclass(frozen=True)
class Cell:
    """One run of a suite.

    Attributes:
        task: its name.
        seed: of the run.
        folder: where it lives.
        args: of the run alone.
    """

    task: str
    seed: int
    folder: Path
    args: GlueArguments


@dataclass(frozen=True)
class Line:
    """One metric of one task, over the seeds.

    Attributes:
        task: its name.
        split: the evaluation's.
        metric: its name.
        values: by seed, in their order.
        baseline: of the constant answer, by seed.
    """

    task: str
    split: str
    metric: str
    values: tuple[float, ...]
    baseline: tuple[float, ...]


def settings_of(args: GlueArguments, task: str) -> dict[str, Any]:
    """The settings that `tasks` has for one task.

    Raises:
        ValueError: settings of an unknown task, or that are no mapping, or name a suite's own
            arguments.
    """
    for name, settings in (args.task.tasks or {}).items():
        if name not in TASKS and name != "custom":
            raise ValueError(f"tasks: unknown task {name!r}{did_you_mean(name, TASKS)}")
        if not isinstance(settings, Mapping):
            raise ValueError(f"tasks: {name}: expected `field: value` lines, got {settings!r}")
        fixed = {"task", "tasks", "seeds", "output_dir", "mnli_checkpoint"}
        own = sorted((fixed | ({"seed"} if args.task.is_suite else set())) & set(settings))
        if own:
            raise ValueError(f"tasks: {name}: {own[0]} cannot be set for a single task")
    return dict((args.task.tasks or {}).get(task, {}))


def plan(args: GlueArguments, build: Callable[[dict, dict], GlueArguments]) -> list[Cell]:
    """The runs that are asked for, each with its own arguments.

    Args:
        args: of the whole.
        build: arguments with the first mapping's values under the command line and the second's
            over it.

    Raises:
        ValueError: settings that cannot be used, or a folder that is a single run's.
    """
    names, task = args.task.task_names(), args.task
    if task.mnli_checkpoint and not set(names) & set(_FROM_MNLI):
        raise ValueError(
            f"mnli_checkpoint is for {', '.join(_FROM_MNLI)}; {', '.join(names)} do not use it"
        )
    if task.is_suite:
        if args.training.push_to_hub:
            raise ValueError("push_to_hub uploads one model: run one task with one seed for it")
        if (args.output_dir / RUN_FILE).exists():
            raise ValueError(
                f"output_dir {args.output_dir} is a single run's folder; choose another one for "
                "several runs (nothing was changed)"
            )
    return [_cell(args, name, seed, build) for name in names for seed in _seeds(args)]


def read_lines(cells: Sequence[Cell]) -> list[Line]:
    """What the finished runs have measured, a line a metric."""
    lines = []
    for name in dict.fromkeys(cell.task for cell in cells):
        results = [_read(cell) for cell in cells if cell.task == name]
        task = next(cell.args.task for cell in cells if cell.task == name)
        metrics = task.metrics or _metrics(name, results[0])
        for split in EVALUATION_SPLITS:
            prefix = metric_prefix(split)
            for metric in metrics:
                if f"{prefix}_{metric}" in results[0]:
                    values = tuple(r[f"{prefix}_{metric}"] for r in results)
                    plain = tuple(r[f"{prefix}_baseline_{metric}"] for r in results)
                    lines.append(Line(name, split, metric, values, plain))
    return lines


def task_scores(lines: Sequence[Line]) -> dict[str, list[float]]:
    """The score of each task by seed: the mean of its metrics, of MNLI over both splits too."""
    scores = {}
    for name in dict.fromkeys(line.task for line in lines):
        mine = [line.values for line in lines if line.task == name]
        scores[name] = [statistics.fmean(values) for values in zip(*mine, strict=True)]
    return scores


def suite_table(lines: Sequence[Line], seeds: Sequence[int]) -> Table:
    """Mean ± deviation of every metric, the constant answer beside it, and the average below."""
    title = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}: {', '.join(map(str, seeds))}"
    table = Table(title=title, caption="per cent; mean ± sample standard deviation over seeds")
    for column in ("task", "metric", "result", "constant answer"):
        table.add_column(column, justify="left" if column in ("task", "metric") else "right")
    for line in lines:
        where = " (mismatched)" if line.split.endswith("mismatched") else ""
        table.add_row(
            line.task + where,
            line.metric.replace("_", " "),
            spread(line.values).show("{:.2f}", 100),
            spread([statistics.fmean(line.baseline)]).show("{:.2f}", 100),
        )
    scores, plain = task_scores(lines), task_scores(_baselines(lines))
    table.add_section()
    table.add_row(
        *_average_name(list(scores)),
        spread(_average(scores)).show("{:.2f}", 100),
        spread([statistics.fmean(_average(plain))]).show("{:.2f}", 100),
    )
    return table


def published(attention: str, tasks: Sequence[str]) -> tuple[Table, list[str]] | None:
    """The published results of models of that attention on these tasks, with their footnotes.

    They are of models pretrained and finetuned at full scale. None where the paper has none of the
    tasks.
    """
    source: PublishedTable | None = None
    if attention in _PUBLISHED:
        source = published_table(_PUBLISHED[attention])
    wanted = {*tasks, *(["mnli_mm"] if "mnli" in tasks else []), "average"}
    if source is None or not wanted & (set(source.columns) - {"average"}):
        return None
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
    target = folder / "results.csv"
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = [f"seed {seed}" for seed in seeds]
        writer.writerow(["task", "split", "metric", "mean", "deviation", "constant", *columns])
        for line in lines:
            over = spread(line.values)
            plain = statistics.fmean(line.baseline)
            rest = [over.mean, over.deviation, plain, *line.values]
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
    target = folder / "results.png"
    figure.savefig(target, dpi=120)
    return target


def _cell(
    args: GlueArguments, name: str, seed: int, build: Callable[[dict, dict], GlueArguments]
) -> Cell:
    folder = args.output_dir
    over: dict[str, Any] = {"task": name, "seeds": None, "tasks": None, "mnli_checkpoint": None}
    if args.task.is_suite:
        folder = folder / name / f"seed-{seed}"
        over |= {"seed": seed, "output_dir": str(folder)}
    if args.task.mnli_checkpoint and name in _FROM_MNLI:
        over |= {"model_name_or_path": args.task.mnli_checkpoint, "new_head": True}
    return Cell(name, seed, folder, build(settings_of(args, name), over))


def _seeds(args: GlueArguments) -> Sequence[int]:
    given = args.task.seed_numbers()
    return [args.training.seed] if given is None else given


def _read(cell: Cell) -> dict[str, Any]:
    return json.loads((cell.folder / RESULTS_FILE).read_text(encoding="utf-8"))


def _metrics(name: str, results: Mapping[str, Any]) -> Sequence[str]:
    """The metrics of a task; of a custom one those that were measured."""
    if name != "custom":
        return find_task(name).metrics
    known = [key.removeprefix("eval_baseline_") for key in results if "eval_baseline_" in key]
    return [metric for metric in known if metric != "score"]


def _baselines(lines: Sequence[Line]) -> list[Line]:
    return [Line(x.task, x.split, x.metric, x.baseline, x.baseline) for x in lines]


def _average(scores: Mapping[str, Sequence[float]]) -> list[float]:
    return [statistics.fmean(values) for values in zip(*scores.values(), strict=True)]


def _average_name(names: Sequence[str]) -> tuple[str, str]:
    if set(names) == set(GLUE_TASKS):
        return "GLUE average", "mean of the nine scores"
    return "average", f"mean of the {len(names)} scores" if len(names) > 1 else "score"
