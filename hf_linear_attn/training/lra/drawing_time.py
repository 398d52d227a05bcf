"""How long drawing will take, said before it begins."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.text import Text

from hf_linear_attn.training.lra.arguments import GeneratorArguments
from hf_linear_attn.training.lra.listops import check_possible, draw
from hf_linear_attn.training.lra.listops_check import evaluate
from hf_linear_attn.training.lra.listops_files import listops_processes
from hf_linear_attn.training.lra.pathfinder_files import draw_images, pathfinder_processes

# Seconds that the trial may take, at least one example.
_TRIAL = 0.5
_MOST_TRIALS = 30


def say_expected_time(
    task: str, args: GeneratorArguments, processes: int | None, folder: Path
) -> None:
    """Draw a few examples, throw them away, and print what all of them will take.

    Args:
        task: listops, pathfinder or pathx.
        args: what is drawn.
        processes: that are asked for, None = all usable cores.
        folder: where the examples will be.

    Raises:
        ValueError: parameters that give no examples.
    """
    if task == "listops":
        examples, what = sum(args.listops_counts.values()), "ListOps expressions"
        used = listops_processes(processes, examples)
    else:
        examples, what = args.pathfinder_images, "Pathfinder images"
        used = pathfinder_processes(processes, examples)
    seconds = examples * _seconds_each(_trial(task, args)) / (used or 1)
    several = f"{used} processes" if used else "1 process"
    line = f"Drawing {examples:,} {what}, about {duration(seconds)} on {several}, into {folder}"
    Console().print(Text(line), soft_wrap=True)


def duration(seconds: float) -> str:
    """In the unit that reads best: `40 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _trial(task: str, args: GeneratorArguments) -> Callable[[int], object]:
    """What draws one example."""
    if task != "listops":
        scenes = args.scenes(task)
        return lambda number: draw_images({"number": [number]}, scenes, args.generator_seed)
    check_possible(args.listops, sum(args.listops_counts.values()))
    expressions = draw(args.listops, random.Random("how long it takes"))
    return lambda number: evaluate(next(expressions).source)


def _seconds_each(trial: Callable[[int], object]) -> float:
    begin = perf_counter()
    for number in count(1):
        trial(number)
        taken = perf_counter() - begin
        if taken > _TRIAL or number == _MOST_TRIALS:
            return taken / number
    raise AssertionError
