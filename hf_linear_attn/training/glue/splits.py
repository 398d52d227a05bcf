"""Which rows are trained on, evaluated and predicted: held-out shares, samples, test rows."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.tasks import EVALUATION_SPLITS, TEST_SPLITS, Task

if TYPE_CHECKING:
    from datasets import Dataset

# Not the run's seed: runs that differ in their seed are compared on the same rows.
_SEED = 0
_HELD_OUT = 0.1


@dataclass(frozen=True)
class Splits:
    """Rows by use.

    Attributes:
        train: to learn from.
        evaluation: split -> rows with labels, the task's main ones first.
        test: split -> rows that are predicted after training, with labels or without.
        remarks: what people should know of how they were chosen.
        shows_test: what is evaluated are test rows, which must not choose between models.
        samples: splits that `max_eval_examples` has made smaller.
    """

    train: "Dataset"
    evaluation: Mapping[str, "Dataset"]
    test: Mapping[str, "Dataset"]
    remarks: tuple[str, ...] = ()
    shows_test: bool = False
    samples: frozenset[str] = frozenset()


def choose_splits(rows: "Mapping[str, Dataset]", task: Task, args: TaskArguments) -> Splits:
    """Decide what the rows of each split are for, and draw samples where they are asked for.

    Rows are evaluated on their own split; where there is none, on the labelled test rows if that is
    the task's custom, else on a share of the training rows.

    Raises:
        ValueError: nothing to hold out, or a share of it where there are evaluation rows.
    """
    train, remarks, shows_test = rows["train"], [], False
    evaluation = {name: rows[name] for name in EVALUATION_SPLITS if name in rows}
    if evaluation and args.validation_fraction is not None:
        raise ValueError(
            f"validation_fraction {args.validation_fraction}: {task.name} has evaluation rows of "
            "its own; leave it out"
        )
    test = {name: rows[name] for name in TEST_SPLITS if name in rows}
    if args.validation_fraction is None and not evaluation and task.test_is_evaluation and test:
        evaluation, test, shows_test = {"test": test["test"]}, {}, True
        remarks.append(f"{task.name} has no validation rows: results are those of the test rows")
    elif not evaluation:
        fraction = args.validation_fraction or _HELD_OUT
        train, held_out = _hold_out(train, fraction)
        evaluation = {"validation": held_out}
        remarks.append(f"evaluated on {fraction:g} of the training rows, held out")
    if task.name == "mnli" and "validation_mismatched" not in evaluation:
        remarks.append("no mismatched rows are here: only the matched ones are evaluated")
    drawn = {n: _sample(part, args.max_eval_examples) for n, part in evaluation.items()}
    return Splits(
        train=_sample(train, args.max_train_examples),
        evaluation=drawn,
        test=test,
        remarks=tuple(remarks),
        shows_test=shows_test,
        samples=frozenset(n for n, part in drawn.items() if len(part) < len(evaluation[n])),
    )


def _sample(rows: "Dataset", count: int | None) -> "Dataset":
    """So many rows in a drawn order: files are often sorted by class."""
    if count is None or count >= len(rows):
        return rows
    return rows.select(np.random.default_rng(_SEED).permutation(len(rows))[:count])


def _hold_out(rows: "Dataset", fraction: float) -> "tuple[Dataset, Dataset]":
    """Split by distinct texts, so that equal ones never fall on both sides."""
    names = [name for name in ("text", "text_pair") if name in rows.column_names]
    digests = np.array(
        [
            int.from_bytes(hashlib.blake2b(repr(texts).encode(), digest_size=8).digest(), "big")
            for texts in zip(*(rows[name] for name in names), strict=True)
        ],
        dtype=np.uint64,
    )
    distinct = np.unique(digests)
    if len(distinct) < 2:
        raise ValueError(
            f"only {len(distinct)} distinct training row: nothing can be held out for evaluation; "
            "give --validation_file"
        )
    count = min(max(1, round(fraction * len(distinct))), len(distinct) - 1)
    chosen = np.random.default_rng(_SEED).permutation(distinct)[:count]
    held_out = np.isin(digests, chosen)
    return rows.select(np.flatnonzero(~held_out)), rows.select(np.flatnonzero(held_out))
