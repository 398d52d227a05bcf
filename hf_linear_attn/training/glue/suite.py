"""Several tasks and seeds: which runs they are.

Each run lives in a folder of its own, `<task>/seed-<seed>`; what is finished is only read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.earlier_start import check_may_write
from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.glue.labels import checkpoint_classes
from hf_linear_attn.training.glue.tasks import TASKS
from hf_linear_attn.training.model_setup import build_config
from hf_linear_attn.training.run_file import RUN_FILE

TABLE, PLOT = "results.csv", "results.png"
"""What is written of a suite."""

_FROM_MNLI = ("mrpc", "rte", "stsb")


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


def check_settings(args: GlueArguments, check: Callable[[dict, str], None]) -> None:
    """Look at the settings of all tasks, also of those that are not run.

    Args:
        args: of the whole.
        check: raises ValueError for fields that do not exist or have another type; takes them and
            their source.

    Raises:
        ValueError: settings of an unknown task, or that are no mapping, or name a suite's own
            arguments, or cannot be used.
    """
    fixed = {"task", "tasks", "seeds", "output_dir", "mnli_checkpoint"}
    fixed |= {"seed"} if args.task.is_suite else set()
    for name, settings in (args.task.tasks or {}).items():
        if name not in TASKS and name != "custom":
            raise ValueError(f"tasks: unknown task {name!r}{did_you_mean(name, TASKS)}")
        if not isinstance(settings, Mapping):
            raise ValueError(f"tasks: {name}: expected `field: value` lines, got {settings!r}")
        own = sorted(fixed & set(settings))
        if own:
            raise ValueError(f"tasks: {name}: {own[0]} cannot be set for a single task")
        check(dict(settings), f"tasks: {name}")


def settings_of(args: GlueArguments, task: str) -> dict[str, Any]:
    """The settings that `tasks` has for one task, which `check_settings` has seen."""
    return dict((args.task.tasks or {}).get(task, {}))


def plan(args: GlueArguments, build: Callable[[dict, dict], GlueArguments]) -> list[Cell]:
    """The runs that are asked for, each with its own arguments.

    Args:
        args: of the whole.
        build: arguments with the first mapping's values under the command line and the second's
            over it.

    Raises:
        ValueError: settings that cannot be used, a folder that is a single run's or holds tables of
            a person, or an `mnli_checkpoint` that is no model of MNLI.
    """
    names, task = args.task.task_names(), args.task
    if task.is_suite:
        if args.training.push_to_hub:
            raise ValueError("push_to_hub uploads one model: run one task with one seed for it")
        if (args.output_dir / RUN_FILE).exists():
            raise ValueError(
                f"output_dir {args.output_dir} is a single run's folder; choose another one for "
                "several runs (nothing was changed)"
            )
        check_may_write(args.output_dir, (TABLE, PLOT), (f"*/seed-*/{RUN_FILE}",))
    if task.mnli_checkpoint:
        if not set(names) & set(_FROM_MNLI):
            raise ValueError(
                f"mnli_checkpoint is for {', '.join(_FROM_MNLI)}; {', '.join(names)} do not use it"
            )
        _check_mnli_checkpoint(task.mnli_checkpoint, args.model)
    return [_cell(args, name, seed, build) for name in names for seed in _seeds(args)]


def _check_mnli_checkpoint(name: str, model: ModelArguments) -> None:
    try:
        saved = replace(model, model_name_or_path=name, model=None, config_overrides=None)
        config = build_config(saved)
    except ValueError as error:  # the argument is called otherwise here
        raise ValueError(str(error).replace("model_name_or_path", "mnli_checkpoint")) from error
    classes, ours = checkpoint_classes(config), TASKS["mnli"].labels or ()
    if classes is None or set(classes) != set(ours):
        got = "it is no classifier" if classes is None else f"its classes are {', '.join(classes)}"
        raise ValueError(
            f"mnli_checkpoint {name} is not finetuned on mnli: {got}, expected {', '.join(ours)}; "
            "for another encoder pass --model_name_or_path, with --new_head where it has a "
            "classifier"
        )


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
