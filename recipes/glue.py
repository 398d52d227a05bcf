"""Finetune on GLUE, IMDB, Amazon reviews or classes of your own.

    accelerate launch recipes/glue.py
    accelerate launch recipes/glue.py --config recipes/configs/glue/base.yaml \
        --task sst2 --data_dir glue --model_name_or_path runs/cosformer-base --output_dir runs/sst2
    accelerate launch recipes/glue.py --config recipes/configs/glue/base.yaml \
        --task all --seeds 1,2,3 --data_dir glue --model_name_or_path runs/cosformer-base \
        --output_dir runs/glue

Without `--config` it does what `recipes/configs/glue/tiny-cpu.yaml` says: a small cosFormer tells
the language reference from the standard library's docstrings, in less than a minute on a CPU. The
same command again goes on where the run, or the suite of runs, stopped.
"""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hf_linear_attn.training.engines import launch_words
from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.glue.run import GlueRun
from hf_linear_attn.training.glue.suite import Cell, check_settings, plan
from hf_linear_attn.training.glue.suite_report import (
    draw_results,
    published,
    read_lines,
    suite_table,
    write_results,
)
from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run import carry_out
from hf_linear_attn.training.run_checks import parse_arguments
from hf_linear_attn.training.run_folder import open_run_folder, resolve_arguments

RECIPE = os.path.relpath(__file__)
DEFAULT_CONFIG = Path(RECIPE).parent / "configs" / "glue" / "tiny-cpu.yaml"


def main(argv: list[str]) -> None:
    """One run, or all runs of a suite and the table over them."""
    parser = RecipeParser(tuple(GlueArguments.__annotations__.values()))

    def build(under: dict, over: dict) -> GlueArguments:
        layers = {"under": under, "over": over}
        return GlueArguments(*parse_arguments(parser, argv, DEFAULT_CONFIG, **layers))

    args = build({}, {})
    check_settings(args, parser.check)
    cells = plan(args, build)
    if not args.task.is_suite:
        carry_out(GlueRun(cells[0].args, RECIPE))
        return
    console = Console(quiet=args.training.process_index > 0)
    run_suite(cells, console)
    if args.training.process_index == 0:
        report_suite(args, cells, console, argv)


def run_suite(cells: Sequence[Cell], console: Console) -> None:
    """Carry out what is not finished; everything is checked before anything is trained."""
    runs = [GlueRun(cell.args, RECIPE) for cell in cells]
    waiting = [run for run in runs if not _is_finished(run)]
    for run, cell in zip(runs, cells, strict=True):
        if run not in waiting:
            read_lines([cell])
    for run in {run.task.name: run for run in waiting}.values():
        run.check_rows()
    for run in runs:
        name = f"{run.task.name}, seed {run.training.seed}"
        if run not in waiting:
            console.print(f"{name}: finished, in {run.output_dir}", soft_wrap=True)
            continue
        console.rule(name)
        carry_out(run, console, last=run is waiting[-1])


def _is_finished(run: GlueRun) -> bool:
    run.check()
    return open_run_folder(run.output_dir, resolve_arguments(*run.arguments)).finished


def report_suite(
    args: GlueArguments, cells: Sequence[Cell], console: Console, argv: Sequence[str]
) -> None:
    """The table over all runs, as text, file and plot; published results of the same kind."""
    lines = read_lines(cells)
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    console.print(suite_table(lines, seeds))
    beside = published(args.model.attention, lines)
    if beside is not None:
        table, notes = beside
        console.print(table, *notes, sep="\n", soft_wrap=True)
    files = write_results(args.output_dir, lines, seeds), draw_results(args.output_dir, lines)
    console.print(Text(f"\nWritten: {files[0]}, {files[1]}"), soft_wrap=True)
    console.print(Text("\n# this table again; finished runs are only read", style="dim"))
    command = shlex.join([*launch_words(args.training, RECIPE), *argv])
    console.print(Text(command), soft_wrap=True)


if __name__ == "__main__":
    run_program(main)
