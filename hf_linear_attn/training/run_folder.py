"""The output folder of a run: whose it is, where to go on, and whether its checkpoint is sound.

A run keeps all its arguments in `run.yaml`. A folder is taken up again only by the run it belongs
to; everything is decided before anything is written.
"""

import dataclasses
import math
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from hf_linear_attn.training.best_checkpoint import check_best_beside
from hf_linear_attn.training.checkpoints import (
    check_checkpoint,
    checkpoint_steps,
    newest_checkpoint,
    unfinished_checkpoints,
)
from hf_linear_attn.training.fingerprint import read_fingerprint
from hf_linear_attn.training.run_file import RUN_FILE, may_be_replaced
from hf_linear_attn.training.saved_files import DamagedFileError, read_json
from hf_linear_attn.training.sealed_model import check_not_edited
from hf_linear_attn.training.yaml_files import read_yaml_mapping

# Beside the run's arguments: which data it has begun with.
DATA_FILE = "data.json"
# The recipe writes it last of all, so it stands for a finished run.
STATE_FILE = "trainer_state.json"
# TensorBoard's folder, which is there before anything is trained.
_REPORTS = "runs"

# What may differ when a run goes on: it changes what is shown, written or kept, or how fast the
# run goes, but not one bit of the training itself.
_MAY_CHANGE = {
    "output_dir", "run_name", "project", "report_to", "disable_tqdm", "log_level",
    "log_level_replica", "log_on_each_node", "logging_strategy", "logging_steps",
    "logging_first_step", "logging_nan_inf_filter", "eval_strategy", "eval_steps", "eval_delay",
    "eval_on_start", "per_device_eval_batch_size", "eval_accumulation_steps", "save_strategy",
    "save_steps", "save_total_limit", "save_on_each_node", "load_best_model_at_end",
    "metric_for_best_model", "greater_is_better", "push_to_hub", "hub_model_id", "hub_strategy",
    "hub_private_repo", "hub_always_push", "hub_revision", "preprocessing_num_workers",
    "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers",
    "dataloader_prefetch_factor", "skip_memory_metrics", "do_train", "do_eval",
    "peak_tflops",
}  # fmt: skip
_MAY_GROW = ("max_steps", "num_train_epochs")
# Of a process or a secret, not of a run.
_NOT_STORED = {"local_rank", "hub_token", "resume_from_checkpoint", "debug"}


@dataclass(frozen=True)
class RunFolder:
    """What is to be done in an output folder.

    Attributes:
        path: the folder; it exists only if something is in it already.
        checkpoint: go on from here; None starts from the beginning.
        finished: the run is complete, there is nothing to do.
        unfinished: newer checkpoints whose saving was interrupted. They are passed over, and
            written again when the run comes to their steps.
    """

    path: Path
    checkpoint: Path | None = None
    finished: bool = False
    unfinished: tuple[Path, ...] = ()

    @property
    def begins_anew(self) -> bool:
        """A run has begun here before, and nothing is there to go on from."""
        return self.checkpoint is None and not self.finished and (self.path / RUN_FILE).is_file()


def resolve_arguments(*arguments: Any) -> dict[str, Any]:
    """All fields of the dataclasses as plain YAML values, defaults included.

    The dictionary can be read back with `--config`. Tokens and what belongs to one process alone
    are left out.
    """
    resolved: dict[str, Any] = {}
    for instance in arguments:
        if isinstance(instance, TrainingArguments):
            resolved |= instance.to_dict()
        else:
            resolved |= dataclasses.asdict(instance)
    return {name: _plain(v) for name, v in resolved.items() if name not in _NOT_STORED}


def open_run_folder(path: Path, arguments: dict[str, Any]) -> RunFolder:
    """Decide what to do in an output folder; nothing is written.

    Args:
        path: the output folder, which need not exist.
        arguments: of `resolve_arguments`.

    Raises:
        ValueError: the folder is a file, cannot be written, holds something else, or belongs to
            another run; a file of a person would be replaced; or its newest checkpoint is damaged,
            or the best one, where it is to be loaded at the end.
    """
    if not _is_there(path):
        return RunFolder(path)
    if _holds_nothing_trained(path):
        _check_marks(path, arguments)
        return RunFolder(path)
    if not (path / RUN_FILE).is_file():
        raise ValueError(
            f"output_dir {path} is not empty and has no {RUN_FILE}, so it is not a run's folder; "
            "put a sound copy in its place if it was one, or choose another output_dir (nothing "
            "was changed)"
        )
    _check_same_run(path, arguments)
    if _is_finished(path, arguments):
        return RunFolder(path, finished=True)
    _check_unchanged(path, arguments)
    checkpoint = newest_checkpoint(path)
    if checkpoint is not None:
        if (path / STATE_FILE).is_file():
            check_not_edited(path)
        check_checkpoint(checkpoint)
        if arguments.get("load_best_model_at_end"):
            check_best_beside(checkpoint)
    elif (path / STATE_FILE).exists():
        raise ValueError(
            f"the run in {path} is finished and kept no checkpoint (save_strategy "
            f"{arguments.get('save_strategy')}), so it cannot be made longer; start a new run from "
            f"its weights with --model_name_or_path {path} and another output_dir"
        )
    else:
        _check_data_file(path)
    unfinished = unfinished_checkpoints(path)
    if checkpoint is not None:
        unfinished = [p for p in unfinished if checkpoint_steps(p) > checkpoint_steps(checkpoint)]
    return RunFolder(path, checkpoint, unfinished=tuple(unfinished))


def _is_there(path: Path) -> bool:
    """Whether a folder exists; ValueError where none can be made, or none can be written."""
    try:
        if path.is_symlink() and not path.exists():
            raise ValueError(f"output_dir {path} is a link that leads nowhere; choose a folder")
        if path.exists() and not path.is_dir():
            raise ValueError(f"output_dir {path} is a file; choose a folder")
        nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        if not nearest.is_dir():
            raise ValueError(f"output_dir {path} cannot be created: {nearest} is a file")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise ValueError(f"output_dir {path} cannot be written: no permission for {nearest}")
        return path.exists()
    except OSError as error:
        raise ValueError(f"output_dir {path} cannot be used: {error.strerror}") from error


def _holds_nothing_trained(path: Path) -> bool:
    """No file at all, or a run's mark without anything that was trained."""
    # A dot begins what was being written when a process was killed.
    begun = tuple(f".{name}." for name in (RUN_FILE, DATA_FILE))
    names = {entry.name for entry in path.iterdir() if not entry.name.startswith(begun)}
    return names <= ({RUN_FILE, DATA_FILE, _REPORTS} if RUN_FILE in names else {DATA_FILE})


def _check_marks(path: Path, arguments: dict[str, Any]) -> None:
    """Raise ValueError where the files are not those of a run, which this one may replace."""
    if not may_be_replaced(path / RUN_FILE, arguments):
        raise ValueError(_of_nobody(path, RUN_FILE))
    _check_data_file(path)


def _check_data_file(path: Path) -> None:
    if not os.path.lexists(path / DATA_FILE):
        return
    try:
        read_fingerprint(path / DATA_FILE)
    except ValueError as error:
        raise ValueError(_of_nobody(path, DATA_FILE)) from error


def _of_nobody(path: Path, name: str) -> str:
    return (
        f"output_dir {path} holds a {name} that no run has written, or that was changed since, and "
        "a run writes its own there; give that file another name or place, or choose another "
        "output_dir (nothing was changed)"
    )


def _check_unchanged(path: Path, arguments: dict[str, Any]) -> None:
    """Raise ValueError if what a person has put into the arguments of a run would be replaced."""
    if may_be_replaced(path / RUN_FILE, arguments):
        return
    stored = _read_run_file(path)
    names = [n for n in arguments if n not in stored or stored[n] != arguments[n]]
    raise ValueError(
        f"{path / RUN_FILE} is not as a run has written it, and this run would replace it, for "
        f"{_shown(names, stored, arguments)}; write the same into it by hand, or repeat that run's "
        "arguments (nothing was changed)"
    )


def _read_run_file(path: Path) -> dict[str, Any]:
    try:
        stored = read_yaml_mapping(path / RUN_FILE)
        if stored:
            return stored
        error = None
    except ValueError as found:
        error = found
    raise ValueError(
        f"{path / RUN_FILE} is damaged, so it is not known which run this is; put a sound copy in "
        "its place to go on (the same command with another output_dir writes an equal one there as "
        "its training begins), or choose another output_dir; nothing was changed"
    ) from error


def _check_same_run(path: Path, arguments: dict[str, Any]) -> None:
    stored = _read_run_file(path)
    free = _MAY_CHANGE | set(_MAY_GROW)
    unknown = [n for n in stored if n not in arguments]
    other = [n for n in arguments if n not in free and stored.get(n) != arguments[n]]
    if other:
        raise ValueError(
            f"output_dir {path} belongs to another run, which differs in "
            f"{_shown([*other, *unknown], stored, arguments)}; choose another output_dir or repeat "
            "that run's arguments (nothing was changed)"
        )
    if unknown:
        raise ValueError(
            f"{path / RUN_FILE} has {', '.join(map(repr, unknown[:4]))}, which this version of the "
            "program does not know; take it out by hand to go on without, or choose another "
            "output_dir (nothing was changed)"
        )
    for name in _MAY_GROW:
        _check_grown(path, name, stored.get(name), arguments[name])


def _check_grown(path: Path, name: str, before: Any, now: float) -> None:
    is_number = type(before) is int or (isinstance(before, float) and not math.isnan(before))
    if not is_number:
        raise ValueError(
            f"{path / RUN_FILE} is damaged: {name} is {before!r}, expected a number; write the "
            "number of that run there, or choose another output_dir (nothing was changed)"
        )
    if now != before and (now < before or min(before, now) < 0):
        raise ValueError(
            f"{name} of the run in {path} can only grow: it was {before}, got {now}; "
            "choose another output_dir for a shorter run"
        )


def _shown(names: list[str], stored: dict[str, Any], arguments: dict[str, Any]) -> str:
    """The first of the arguments that differ, and how many more there are."""
    shown = ", ".join(f"{n} {arguments.get(n)!r} (was {stored.get(n)!r})" for n in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _is_finished(path: Path, arguments: dict[str, Any]) -> bool:
    name, goal = ("global_step", "max_steps")
    if arguments["max_steps"] <= 0:
        name, goal = ("epoch", "num_train_epochs")
    try:
        reached = read_json(path / STATE_FILE).get(name)
    except DamagedFileError:
        return False  # its writing was cut off: the run goes on from its newest checkpoint
    return isinstance(reached, int | float) and reached >= arguments[goal]


def _plain(value: Any) -> Any:
    """A value that YAML writes without Python tags, and reads back equal."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
