"""Which files and arguments a run has, and all tasks one after the other."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from hf_linear_attn.training.lra.arguments import ALL, LraArguments, LraRunArguments
from hf_linear_attn.training.lra.results import read_results, show_results
from hf_linear_attn.training.lra.run import LraRun
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run import carry_out
from hf_linear_attn.training.run_checks import parse_arguments
from hf_linear_attn.training.run_folder import open_run_folder, resolve_arguments
from hf_linear_attn.training.yaml_files import read_yaml_mapping


def read_runs(argv: list[str], configs: Path) -> tuple[list[LraRunArguments], Path | None]:
    """The arguments of each run that a command line asks for.

    The preset's own file of the task, `<configs>/<preset>/<task>.yaml`, lies below everything:
    `--config` files go over it, and the command line over them. A command line with neither
    `--config` nor `--task` takes `<configs>/tiny-cpu.yaml`.

    Args:
        argv: the command line without the program's name.
        configs: folder of the recipe's configurations.

    Returns:
        Arguments by task, and with task=all the folder that holds the runs.

    Raises:
        ValueError: a mistake in any of them.
    """
    wanted = _peek(argv)
    if wanted["config"] is None and "task" not in wanted["given"]:
        argv = ["--config", str(configs / "tiny-cpu.yaml"), *argv]
        wanted = _peek(argv)
    parser = RecipeParser(tuple(LraRunArguments.__annotations__.values()))
    # Checked before a file is looked for by these names; --help is shown by the parser.
    lra = LraArguments(task=wanted["task"], preset=wanted["preset"], suite=wanted["suite"])
    runs = []
    base = None if lra.task != ALL else Path(wanted["output_dir"] or "runs/lra-all")
    for task in lra.tasks:
        file = configs / wanted["preset"] / f"{task}.yaml"
        line = ["--config", str(file), *argv]
        if base is not None:
            line += ["--task", task, "--suite", "null", "--output_dir", str(base / task)]
        runs.append(LraRunArguments(*parse_arguments(parser, line, file)))
    if not runs:
        raise ValueError(f"suite: none of its tasks is in the preset {wanted['preset']}")
    return runs, base


def carry_out_all(
    runs: list[LraRunArguments], base: Path | None, program: str, configs: Path
) -> None:
    """Lead the runs one after the other; with a folder for all, print their common table.

    Everything that can be known of any run is checked before the first one begins. Finished runs
    are not repeated.

    Args:
        runs: of `read_runs`.
        base: likewise.
        program: path of the recipe.
        configs: folder of its configurations.

    Raises:
        ValueError: a mistake, before anything is trained.
    """
    made = [LraRun(args, program, configs) for args in runs]
    for run in made:
        run.check()
    console = Console(quiet=made[0].training.process_index > 0)
    waiting = [run for run in made if not _is_finished(run)]
    if base is not None:
        for run in made:
            if run not in waiting:
                read_results(run.output_dir)  # what is damaged shows before others are trained
    for run in made:
        # Only behind the last one that trains do the processes part.
        carry_out(run, console, last=not waiting or run is waiting[-1])
    if base is None or made[0].training.process_index > 0:
        return
    results = {run.task.name: read_results(run.output_dir) for run in made}
    show_results(console, results)


def _is_finished(run: LraRun) -> bool:
    return open_run_folder(run.output_dir, resolve_arguments(*run.arguments)).finished


def _peek(argv: list[str]) -> dict[str, Any]:
    """Task, preset, suite and folder, without looking at anything else."""
    parser = _Peek(add_help=False, allow_abbrev=False)
    for name in ("task", "preset", "output_dir"):
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", default=argparse.SUPPRESS)
    parser.add_argument("--config", nargs="+", action="extend", default=argparse.SUPPRESS)
    parser.add_argument("--suite", nargs="+", default=argparse.SUPPRESS)
    given = vars(parser.parse_known_args(argv)[0])
    files = given.pop("config", None)
    values: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(LraArguments)}
    values |= {"output_dir": None}
    for file in files or []:
        values |= read_yaml_mapping(Path(file))
    values |= given
    names = ("task", "preset", "suite", "output_dir")
    return {**{name: values[name] for name in names}, "config": files, "given": given}


class _Peek(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)
