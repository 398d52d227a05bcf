r"""Run a grid of recipe runs over seeds, to one table and one plot.

    python scripts/ablate.py --recipe mlm --seeds 1,2,3 \
        --config recipes/configs/ablations/activation-x-reweighting.yaml

Every cell and seed is a run of the recipe in a folder of its own. The same command again reads what
is finished, goes on with what is not, and tries again what failed. Further arguments are the
recipe's and hold for every run: `--max_steps 100`.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ablation.launch import CPU_SECONDS, LOCK, alone_in, launch
from hf_linear_attn.training.ablation_grid import (
    Cell,
    Grid,
    cells_of,
    read_grid,
    run_settings,
    slug,
)
from hf_linear_attn.training.ablation_report import (
    PAGE,
    PLOT,
    TABLE,
    CellResult,
    rich_table,
    write_report,
)
from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.earlier_start import check_may_write
from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.lra.arguments import LraRunArguments
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.program import ProgramParser, run_program
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.results_file import RESULTS_FILE, ResultsFile
from hf_linear_attn.training.run_checks import parse_arguments
from hf_linear_attn.training.yaml_files import parse_yaml

ARGUMENTS = {
    "mlm": MaskedLMArguments,
    "clm": CausalLMArguments,
    "glue": GlueArguments,
    "lra": LraRunArguments,
}
RECIPES = Path(os.path.relpath(__file__)).parents[1] / "recipes"


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes:
        recipe: the program.
        grid: the cells.
        seeds: each cell is run with each of them.
        extra: recipe arguments of every run.
        folder: where everything is written.
        launch: the words before the recipe.
        environment: variables that every run is given beside this program's own.
    """

    recipe: Path
    grid: Grid
    seeds: list[int]
    extra: dict[str, Any]
    folder: Path
    launch: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def main(argv: list[str]) -> None:
    """Run what is not finished; print the table, write it with the plot."""
    plan = read_plan(argv)
    console = Console()
    results = carry_out(plan, console)
    write_report(plan.grid, results, plan.folder)
    _show(console, plan, results)


def carry_out(plan: Plan, console: Console) -> list[CellResult]:
    """Run what is not finished, under a progress bar; what became of each cell.

    Raises:
        ValueError: settings that the recipe does not take, or tables of a person in the folder,
            before anything is run; or another start of this program is at work there.
    """
    check_folder(plan.folder)
    cells = cells_of(plan.grid)
    # All settings first: a mistake in the last cell shows before the first run.
    settings = [run_settings(plan.grid, cell, plan.extra) for cell in cells]
    for cell, of_cell in zip(cells, settings, strict=True):
        check_settings(plan, cell, of_cell)
    results = [CellResult(cell, {}, {}, {}) for cell in cells]
    with alone_in(plan.folder), _progress(console) as progress:
        task = progress.add_task("", total=len(cells) * len(plan.seeds))
        # Seed by seed: a first look at all cells comes early.
        for seed in plan.seeds:
            for i, cell in enumerate(cells):
                progress.update(task, description=f"{describe(plan.grid, cell)}, seed {seed}")
                run_cell(plan, results[i], settings[i], seed)
                progress.advance(task)
    return results


def read_plan(argv: list[str]) -> Plan:
    """The command line; what this program does not know is the recipe's."""
    # A recipe's --seed would be taken for an abbreviation of --seeds.
    parser = ProgramParser(__doc__)
    parser.add_argument("--recipe", default="mlm", help="a program in recipes/ (default: mlm)")
    parser.add_argument("--config", required=True, help="the grid, a file of configs/ablations")
    parser.add_argument("--seeds", default="1", help="such as 1,2,3 (default: 1)")
    parser.add_argument("--output_dir", help="default: runs/ablations/<name of the grid's file>")
    parser.add_argument("--accelerate_config", help="launch each run by accelerate with this file")
    args, rest = parser.parse_known_args(argv)
    grid = read_grid(Path(args.config))
    folder = Path(args.output_dir or Path("runs") / "ablations" / Path(args.config).stem)
    launch = [sys.executable]
    if args.accelerate_config:
        if not Path(args.accelerate_config).is_file():
            raise ValueError(f"accelerate_config {args.accelerate_config!r} does not exist")
        command = ["-m", "accelerate.commands.launch", "--config_file", args.accelerate_config]
        launch += command
    return Plan(_recipe(args.recipe), grid, read_seeds(args.seeds), _extra(rest), folder, launch)


def check_folder(folder: Path) -> None:
    """Raise ValueError where a person's tables or plot would be replaced by those of a grid."""
    check_may_write(folder, (TABLE, PAGE, PLOT), (LOCK, "*/seed-*.yaml"))


def check_settings(plan: Plan, cell: Cell, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for a field that the recipe does not have, or of a wrong type."""
    kinds = ARGUMENTS.get(plan.recipe.stem)
    if kinds is None:
        return  # a program of the user's own
    types = tuple(kinds.__annotations__.values())
    wanted = {**settings, "output_dir": str(plan.folder / slug(cell))}
    try:
        parse_arguments(RecipeParser(types), [], None, under=wanted)
    except ValueError as error:
        raise ValueError(f"{describe(plan.grid, cell)}: {error}") from error


def run_cell(plan: Plan, result: CellResult, settings: Mapping[str, Any], seed: int) -> None:
    """Put the figures of a run, which is carried out unless it is finished, or why it failed."""
    folder = plan.folder / slug(result.cell) / f"seed-{seed}"
    metric = plan.grid.metric
    try:
        _carry_out(plan, settings, seed, folder)
        figure = _figure(metric.key, folder)
        if metric.baseline is not None:
            result.baselines[seed] = _figure(metric.baseline, folder)
        result.figures[seed] = figure
    except FailedRunError as error:
        result.failures[seed] = str(error)


class FailedRunError(Exception):
    """A run that failed or left no figure; the message says why."""


def _carry_out(plan: Plan, settings: Mapping[str, Any], seed: int, folder: Path) -> None:
    wanted = {**settings, "seed": seed, "output_dir": str(folder)}
    text = yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True)
    # Beside the run's folder, which is the run's alone: with which settings it was finished.
    finished = folder.with_suffix(".finished.yaml")
    done = finished.is_file() and finished.read_bytes() == text.encode()
    if not (done and (folder / RESULTS_FILE).is_file()):
        settings_file, log = folder.with_suffix(".yaml"), folder.with_suffix(".log")
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(settings_file, text)
        command = [*plan.launch, str(plan.recipe), "--config", str(settings_file)]
        code = launch(command, plan.environment, log, folder.with_suffix(CPU_SECONDS))
        if code:
            raise FailedRunError(f"exit code {code}: {_last_line(log)}")
        write_atomically(finished, text)


def describe(grid: Grid, cell: Cell) -> str:
    """A cell in words."""
    pairs = zip(grid.axes, cell, strict=True)
    return ", ".join(f"{axis.name} {value.name}" for axis, value in pairs)


def _figure(key: str, folder: Path) -> float:
    try:
        results = ResultsFile(folder)
        if key not in results.content:
            hint = did_you_mean(key, results.content)
            raise FailedRunError(f"{results.file} has no number {key!r}{hint}")
        value = results.get(key, float)
    except ValueError as error:
        raise FailedRunError(str(error)) from error
    if not math.isfinite(value):
        raise FailedRunError(f"{key} is {value}")
    return value


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("error: ")]
    return (errors or said or ["nothing was printed"])[-1]


def _recipe(name: str) -> Path:
    known = sorted(path.stem for path in RECIPES.glob("*.py"))
    if name not in known:
        hint = did_you_mean(name, known)
        raise ValueError(f"recipe: got {name!r}, expected one of {', '.join(known)}{hint}")
    return RECIPES / f"{name}.py"


def read_seeds(text: str) -> list[int]:
    """Seeds with commas between; ValueError for anything else."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ValueError(f"seeds: got {text!r}, expected numbers with commas between, as 1,2,3")
    seeds = [int(word) for word in words]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds: got {text!r}, in which a seed is given twice")
    return seeds


def _extra(words: Sequence[str]) -> dict[str, Any]:
    """`--name value` pairs as YAML values; several values are a list, none is true."""
    given: dict[str, list[str]] = {}
    name = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            if name in ("seed", "output_dir") or name in given:
                hint = "; use --seeds" if name == "seed" else ""
                raise ValueError(f"--{name} is given twice or set by the grid{hint}")
            given[name] = [value] if equals else []
        elif name is None:
            raise ValueError(f"unexpected argument {word!r}; values follow a --field")
        else:
            given[name].append(word)
    values = {n: [parse_yaml(v, f"--{n}") for v in each] for n, each in given.items()}
    # Overrides are text, whatever YAML would make of them.
    values |= {n: each for n, each in given.items() if n == "config_overrides"}
    return {
        n: True if not each else each[0] if len(each) == 1 else each for n, each in values.items()
    }


def _progress(console: Console) -> Progress:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    return Progress(*columns, console=console)


def _show(console: Console, plan: Plan, results: Sequence[CellResult]) -> None:
    console.print(rich_table(plan.grid, results))
    written = f"Written to {plan.folder}: {TABLE}, {PAGE}, {PLOT}"
    console.print(written, soft_wrap=True, markup=False)
    if show_failures(console, plan, results):
        raise SystemExit(1)


def show_failures(console: Console, plan: Plan, results: Sequence[CellResult]) -> bool:
    """A line for each run that failed; whether there is one."""
    failed = [(r.cell, seed, why) for r in results for seed, why in r.failures.items()]
    for cell, seed, why in failed:
        where = plan.folder / slug(cell) / f"seed-{seed}.log"
        words = f"{describe(plan.grid, cell)}, seed {seed} failed: {why} ({where})"
        console.print(words, soft_wrap=True, markup=False, style="red")
    return bool(failed)


if __name__ == "__main__":
    run_program(main)
