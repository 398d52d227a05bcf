"""Predictions of the test rows in the format that the benchmark takes.

A tab-separated file with the header `index prediction`: numbers of the official order, the names of
the classes for the inference tasks, and a number from 0 to 5 for STS-B (https://gluebenchmark.com).
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hf_linear_attn.training.atomic_files import replaced
from hf_linear_attn.training.glue.tasks import Task


def write_submission(
    folder: Path,
    split: str,
    task: Task,
    order: Sequence[str],
    index: Sequence[int],
    logits: np.ndarray,
) -> Path:
    """Write the predictions of a test split.

    Args:
        folder: created where it does not exist.
        split: of `TEST_SPLITS`; the file is named after it by the task's table.
        task: whose rows they are.
        order: the classes as the model numbers them; none for a regression.
        index: of each row in its official file.
        logits: (rows, classes), or (rows, 1) of a regression.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / task.submissions.get(split, f"{task.name}-{split}.tsv")
    with replaced(target) as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE)
        writer.writerow(["index", "prediction"])
        writer.writerows(zip(index, _predictions(task, order, logits), strict=True))
    return target


def _predictions(task: Task, order: Sequence[str], logits: np.ndarray) -> list[str]:
    if task.is_regression:
        numbers = logits.reshape(len(logits)).astype(np.float64)
        # The benchmark takes nothing outside of the range; a correlation hardly notices.
        limits = task.label_range or (-np.inf, np.inf)
        return [f"{number:.3f}" for number in numbers.clip(*limits)]
    names = [order[int(number)] for number in logits.argmax(axis=-1)]
    if task.submits_names or not task.labels:
        return names
    return [str(task.labels.index(name)) for name in names]
