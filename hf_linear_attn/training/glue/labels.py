"""Labels by name: from texts to targets, and whose order of the classes counts.

A number means nothing without the list it points into. So rows carry names, and they become numbers
once, in the order of the model that is trained: a checkpoint with the same classes in another order
keeps its own.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from transformers import PretrainedConfig

from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.glue.tasks import Task

if TYPE_CHECKING:
    from datasets import Dataset

_UNNAMED = "LABEL_"


def class_names(task: Task, training_rows: "Dataset") -> tuple[str, ...]:
    """The task's classes in their order; those of the training rows, sorted, where it has none.

    Numbers are sorted by value. A regression has no classes.

    Raises:
        ValueError: no training row has a label.
    """
    if task.labels is not None:
        return task.labels
    found = {str(label) for label in training_rows.unique("label") if label}
    if not found:
        columns = " or ".join(map(repr, task.label_columns))
        raise ValueError(
            f"train: all {len(training_rows):,} labels in column {columns} are missing; "
            "give rows with labels, or name another --label_column"
        )
    numeric = all(name.lstrip("-").isdecimal() for name in found)
    return tuple(sorted(found, key=int if numeric else None))


def positive_class(task: Task, names: Sequence[str], asked: str | None) -> str | None:
    """The class that F1 is about, by name; None where nobody asks for F1.

    Args:
        task: its own counts first.
        names: of the task in its order, not a model's; without more, it is the second.
        asked: the one that was named.

    Raises:
        ValueError: there is no such class.
    """
    if "f1" not in task.metrics:
        return None
    if asked is not None and asked not in names:
        raise ValueError(
            f"positive_class: got {asked!r}, expected one of {', '.join(names)}"
            f"{did_you_mean(asked, names)}"
        )
    return asked or task.positive or names[1]


def checkpoint_classes(config: PretrainedConfig) -> tuple[str, ...] | None:
    """The classes of a saved classifier in its order; None for a model of another kind.

    `label2id` may be left out.

    Raises:
        ValueError: `id2label` and `label2id` contradict each other.
    """
    architectures = config.architectures or ()
    if not any(name.endswith("ForSequenceClassification") for name in architectures):
        return None
    by_id = cast("Mapping[int, str]", config.id2label or {})
    names = tuple(by_id[number] for number in sorted(by_id))
    by_name = config.label2id or {}
    if len(set(names)) < len(names):
        raise ValueError(f"the checkpoint's id2label {dict(by_id)} names a class twice; mend it")
    if by_name and dict(by_name) != {name: number for number, name in enumerate(names)}:
        raise ValueError(
            f"the checkpoint's id2label {dict(by_id)} and label2id {dict(by_name)} contradict each "
            "other; mend its config.json"
        )
    return names


def order_of_classes(
    names: Sequence[str], of_checkpoint: Sequence[str] | None, source: str
) -> tuple[str, ...]:
    """The order in which the model numbers the classes: the checkpoint's where it has a classifier.

    Args:
        names: of the task, in its order; none for a regression.
        of_checkpoint: of `checkpoint_classes`.
        source: the checkpoint's name.

    Raises:
        ValueError: the checkpoint's classes are other ones.
    """
    if of_checkpoint is None:
        return tuple(names)
    if not names and len(of_checkpoint) == 1:
        return ()
    if set(of_checkpoint) == set(names) and len(of_checkpoint) == len(names):
        return tuple(of_checkpoint)
    unnamed = all(name.startswith(_UNNAMED) for name in of_checkpoint)
    theirs = "without names" if unnamed else ", ".join(of_checkpoint)
    ours = ", ".join(names) if names else "none: a regression"
    advice = "choose another model"
    if unnamed and len(of_checkpoint) == len(names):
        example = json.dumps({str(number): name for number, name in enumerate(names)})
        advice = (
            f"write their names in the model's order as id2label into its config.json, such as "
            f"{example} without any label2id"
        )
    raise ValueError(
        f"task and model do not agree: the classes of {source} are {len(of_checkpoint)} "
        f"({theirs}), those of the task are {len(names)} ({ours}); {advice}, or pass --new_head to "
        "keep its encoder alone"
    )


def targets(rows: "Dataset", split: str, task: Task, order: Sequence[str]) -> np.ndarray:
    """The target of each row: int64 numbers in that order, or float32 of a regression.

    Raises:
        ValueError: a label that is missing, unknown, no number, or outside the task's range.
    """
    given = cast("list[str]", list(rows["label"]))
    index = list(rows["index"])  # in the file: rows may be a sample of it
    missing = sum(not label for label in given)
    if missing == len(given) > 0:
        raise ValueError(
            f"the labels of the {split} rows are hidden (all {len(given):,} are missing), so they "
            "serve neither training nor evaluation; give rows with labels"
        )
    if missing:
        row = next(row for row, label in zip(index, given, strict=True) if not label)
        raise ValueError(
            f"{split}, row {row}: the label is missing ({missing:,} of {len(given):,} rows); give "
            "labels to all rows, or leave those without out"
        )
    if task.is_regression:
        labels = zip(index, given, strict=True)
        return np.array([_number(v, f"{split}, row {i}", task) for i, v in labels], "f4")
    ids = {name: number for number, name in enumerate(order)}
    unknown = Counter(label for label in given if label not in ids)
    if unknown:
        name = next(iter(unknown))
        raise ValueError(
            f"{split}, row {index[given.index(name)]}: label {name!r} is unknown "
            f"({unknown.total():,} rows in all), expected one of {', '.join(order)}"
            f"{did_you_mean(name, order)}"
        )
    return np.array([ids[label] for label in given], dtype=np.int64)


def check_variety(train: np.ndarray, order: Sequence[str]) -> None:
    """Raise ValueError if there is nothing to tell apart in the training rows."""
    values = np.unique(train)
    if len(values) > 1:
        return
    what = f"of class {order[int(values[0])]!r}" if order else f"labelled {values[0]:g}"
    raise ValueError(
        f"all {len(train):,} training rows are {what}: there is nothing to learn; give rows of two "
        "classes at least, or raise max_train_examples"
    )


def label_fields(order: Sequence[str]) -> dict[str, Any]:
    """The config fields of a classifier of these classes, or of a regression."""
    if not order:
        return {
            "id2label": {0: "score"},
            "label2id": {"score": 0},
            "problem_type": "regression",
        }
    return {
        "id2label": dict(enumerate(order)),
        "label2id": {name: number for number, name in enumerate(order)},
        "problem_type": "single_label_classification",
    }


def _number(text: str, where: str, task: Task) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError(f"{where}: label {text!r} is no number") from error
    low, high = task.label_range or (-math.inf, math.inf)
    if not (math.isfinite(number) and low <= number <= high):
        raise ValueError(
            f"{where}: label {text} lies outside of {low:g} to {high:g}, the range of {task.name}"
        )
    return number
