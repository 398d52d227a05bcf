r"""Train small language models with one attention or another, and write a page of results.

    python scripts/reproduce.py --collect clones --data_dir texts   # the texts, once
    python scripts/reproduce.py --data_dir texts                 # all: under four hours of one core
    python scripts/reproduce.py --data_dir texts --only causal   # one experiment
    python scripts/reproduce.py --data_dir texts --write         # also into docs/results.md

Every model and seed is a run of a recipe in a folder of its own. The same command again reads what
is finished and goes on with what is not, also after it was killed. Which texts it takes, and how to
get them, stands at the end of docs/results.md.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

import ablate
from ablation.launch import CPU_SECONDS, LOCK, cpu_seconds
from hf_linear_attn.training.ablation_grid import (
    Axis,
    Grid,
    Value,
    cells_of,
    read_grid,
    run_settings,
    slug,
)
from hf_linear_attn.training.ablation_report import PLOT, CellResult, rich_table, write_report
from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.earlier_start import check_may_write
from hf_linear_attn.training.program import ProgramParser, run_program
from reproduction.experiments import EXPERIMENTS, Experiment
from reproduction.figures import ExperimentFigures, Figures, read_figures
from reproduction.kept_times import KeptTimes, read_times, write_times
from reproduction.page import PLOTS, page, plot_name
from reproduction.run_folder import data_lines, run_figures
from reproduction.same_time import ROUNDS, step_seconds, steps_in_the_same_time
from reproduction.texts import check_texts, collect_texts

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, FIGURES = "results.md", "results.json"
STEP_SECONDS = "step_seconds.json"
LEAST_SEEDS = 3
# Of PyTorch: models this small gain nothing from a second one.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def main(argv: list[str]) -> None:
    """Run what is not finished; tables on the screen, page, plots and figures in files."""
    args = read_arguments(argv)
    console = Console()
    if args.collect is not None:
        collect_texts(args.collect, args.data_dir)
        console.print(f"All texts are in {args.data_dir}", soft_wrap=True, markup=False)
        return
    check_folders(args)
    earlier = _earlier(args.output_dir)
    found: dict[str, ExperimentFigures] = {}
    failed = False
    for experiment in args.only:
        plan = plan_of(experiment, args, console)
        results = ablate.carry_out(plan, console)
        found[experiment.name] = figures_of(plan, results)
        write_report(plan.grid, results, plan.folder)
        console.print(rich_table(plan.grid, results))
        failed |= ablate.show_failures(console, plan, results)
    known = {**earlier, **found}
    figures = Figures({name: known[name] for name in EXPERIMENTS if name in known})
    folders = [args.output_dir, *([DOCS] if args.write and not failed else [])]
    for folder in folders:
        write_page(figures, args.output_dir, folder)
        console.print(f"Written to {folder}: {PAGE}, {FIGURES}, {PLOTS}/", soft_wrap=True)
    if failed:
        raise SystemExit(1)


def read_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line, checked."""
    parser = ProgramParser(__doc__, prog="python scripts/reproduce.py")
    names = ",".join(EXPERIMENTS)
    add = parser.add_argument
    add("--data_dir", help="folder of the texts (default: lm/ below $HF_LINEAR_ATTN_DATA)")
    add("--collect", type=Path, metavar="FOLDER", help="find the texts anywhere below this folder, "
        "by their content, and copy them into data_dir; nothing is run")  # fmt: skip
    add("--only", default=names, help=f"some of {names} (default: all)")
    add("--seeds", default="1,2,3", help="default: 1,2,3")
    add("--output_dir", default="runs/results", help="default: runs/results")
    add("--write", action="store_true", help="write page, plots and figures into docs/, too")
    args = parser.parse_args(argv)
    if args.collect is not None:
        return _to_collect(args, parser)
    args.only = [_experiment(name.strip()) for name in args.only.split(",")]
    args.seeds = ablate.read_seeds(args.seeds)
    args.output_dir = Path(args.output_dir)
    args.data_dir = _data_dir(args.data_dir)
    if args.write and {e.name for e in args.only} != set(EXPERIMENTS):
        raise ValueError("--write puts the page of all experiments into docs/: leave --only out")
    if args.write and len(args.seeds) < LEAST_SEEDS:
        raise ValueError(
            f"--write puts means and deviations into docs/: give {LEAST_SEEDS} --seeds or more"
        )
    for experiment in args.only:
        check_texts(args.data_dir, (*experiment.train, *experiment.validation))
    return args


def _to_collect(args: argparse.Namespace, parser: argparse.ArgumentParser) -> argparse.Namespace:
    for name in ("only", "seeds", "output_dir", "write"):
        if getattr(args, name) != parser.get_default(name):
            raise ValueError(f"--collect runs nothing, and --{name} is about what is run")
    if args.data_dir is None:
        raise ValueError("--collect needs --data_dir, the folder to copy the texts into")
    if not args.collect.is_dir():
        raise ValueError(f"--collect: {args.collect} is not a folder")
    args.data_dir = Path(args.data_dir)
    return args


def check_folders(args: argparse.Namespace) -> None:
    """Raise ValueError where files of a person would be replaced in the output folder."""
    plots = [f"{PLOTS}/{plot_name(name)}" for name in EXPERIMENTS]
    check_may_write(args.output_dir, (PAGE, FIGURES, *plots), (f"*/{LOCK}", "*/*/seed-*.yaml"))
    for experiment in args.only:
        ablate.check_folder(args.output_dir / experiment.name)


def plan_of(experiment: Experiment, args: argparse.Namespace, console: Console) -> ablate.Plan:
    """The experiment's grid with its texts, and with its steps where they follow from a clock."""
    grid = read_grid(experiment.grid)
    extra = {
        "train_file": [str(args.data_dir / name) for name in experiment.train],
        "validation_file": [str(args.data_dir / name) for name in experiment.validation],
    }
    folder = args.output_dir / experiment.name
    recipe = ablate.RECIPES / f"{experiment.recipe}.py"
    if experiment.same_time:
        grid = with_the_same_time(grid, extra, folder, console)
    launch = [sys.executable]
    return ablate.Plan(recipe, grid, args.seeds, extra, folder, launch, ONE_THREAD)


def with_the_same_time(grid: Grid, extra: dict[str, Any], folder: Path, console: Console) -> Grid:
    """The grid with steps for each model; what a step costs is measured once and kept."""
    settings = {cell[0].name: run_settings(grid, cell, extra) for cell in cells_of(grid)}
    kept = folder / STEP_SECONDS
    times = read_times(kept)
    if times is None or times.settings != settings:
        times = KeptTimes(_measured(settings, console), settings)
        write_times(kept, times)
    steps = steps_in_the_same_time(grid.arguments["max_steps"], times.seconds)
    [axis] = grid.axes
    values = tuple(
        Value(value.name, {**value.arguments, "max_steps": steps[value.name]})
        for value in axis.values
    )
    return dataclasses.replace(grid, axes=(Axis(axis.name, values),))


def figures_of(plan: ablate.Plan, results: Sequence[CellResult]) -> ExperimentFigures:
    """What the finished runs have measured."""
    settings = run_settings(plan.grid, results[0].cell, plan.extra)
    tokens = settings["per_device_train_batch_size"] * settings["block_size"]
    found = ExperimentFigures(tokens_per_step=tokens)
    for result in results:
        name = result.cell[0].name
        steps = run_settings(plan.grid, result.cell, plan.extra)["max_steps"]
        folders = {s: plan.folder / slug(result.cell) / f"seed-{s}" for s in result.figures}
        found.runs += [run_figures(each, name, seed, steps) for seed, each in folders.items()]
        spent = [cpu_seconds(each.with_suffix(CPU_SECONDS)) for each in folders.values()]
        known = [seconds / 60 for seconds in spent if seconds is not None]
        if known:
            found.cpu_minutes[name] = round(sum(known) / len(known), 2)
        if folders and not found.data:
            found.data = data_lines(next(iter(folders.values())))
    times = read_times(plan.folder / STEP_SECONDS)
    if times is not None:
        found.step_seconds = dict(times.seconds)
    return found


def write_page(figures: Figures, runs: Path, folder: Path) -> None:
    """Figures, page and plots into a folder."""
    write_atomically(folder / FIGURES, figures.as_json())
    write_atomically(folder / PAGE, page(figures))
    (folder / PLOTS).mkdir(parents=True, exist_ok=True)
    for name in figures.experiments:
        content = (runs / name / PLOT).read_bytes()
        (folder / PLOTS / plot_name(name)).write_bytes(content)


def _earlier(folder: Path) -> dict[str, ExperimentFigures]:
    """What other starts have found: an experiment that is left out now stays on the page."""
    file = folder / FIGURES
    return read_figures(file).experiments if file.is_file() else {}


def _measured(settings: dict[str, dict[str, Any]], console: Console) -> dict[str, float]:
    with Progress(console=console) as progress:
        task = progress.add_task("CPU time of a step", total=ROUNDS)
        return step_seconds(settings, lambda done: progress.update(task, completed=done))


def _experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS)
        raise ValueError(f"only: got {name!r}, expected some of {', '.join(EXPERIMENTS)}{hint}")
    return EXPERIMENTS[name]


def _data_dir(given: str | None) -> Path:
    data = os.environ.get("HF_LINEAR_ATTN_DATA")
    if given is None and data is None:
        raise ValueError("give --data_dir, the folder of the texts, or set HF_LINEAR_ATTN_DATA")
    folder = Path(given) if given is not None else Path(str(data)) / "lm"
    if not folder.is_dir():
        raise ValueError(f"data_dir: {folder} is not a folder")
    return folder


if __name__ == "__main__":
    run_program(main)
