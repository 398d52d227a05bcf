"""Everything a classification run needs of its data: tokenizer, examples, baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training.fingerprint import examples_fingerprint
from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.examples import Tokenization, build_examples
from hf_linear_attn.training.glue.labels import (
    check_variety,
    class_names,
    order_of_classes,
    positive_class,
    targets,
)
from hf_linear_attn.training.glue.rows import left_out, read_rows
from hf_linear_attn.training.glue.scores import TaskScores, check_metrics
from hf_linear_attn.training.glue.sources import Sources, describe_sources, sample_splits
from hf_linear_attn.training.glue.splits import Splits, choose_splits
from hf_linear_attn.training.glue.tasks import Task
from hf_linear_attn.training.token_ids import id_bound
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Checkpoint:
    """The classifier that a run starts from.

    Attributes:
        name: folder or name on the Hub.
        classes: in its order; None where it has no classifier, or a new one is put on it.
    """

    name: str
    classes: tuple[str, ...] | None


@dataclass(frozen=True)
class TaskData:
    """Prepared data.

    Attributes:
        task: whose data they are, with the class that F1 is about.
        order: the classes as the model numbers them; none for a regression.
        tokenizer: loaded or trained.
        train: examples with labels.
        evaluation: split -> examples with labels, the main ones first.
        test: split -> examples, with labels where the rows have them.
        test_index: split -> the index of each test row in its official file.
        scores: of an evaluation.
        baseline: split with labels -> metrics of the commonest class of the training rows, or of
            their mean.
        constant: name of that class, or the mean.
        description: a line each.
        fingerprint: a digest a split.
        shows_test: what is evaluated are test rows.
        samples: evaluation splits that are not all the official rows.
    """

    task: Task
    order: tuple[str, ...]
    tokenizer: PreTrainedTokenizerFast
    train: "Dataset"
    evaluation: "Mapping[str, Dataset]"
    test: "Mapping[str, Dataset]"
    test_index: Mapping[str, Sequence[int]]
    scores: TaskScores
    baseline: Mapping[str, Mapping[str, float]]
    constant: str
    description: tuple[str, ...]
    fingerprint: dict[str, str]
    shows_test: bool
    samples: frozenset[str]


@dataclass(frozen=True)
class CheckedRows:
    """Rows that can be trained on.

    Attributes:
        task: whose rows they are, with the class that F1 is about.
        splits: by use.
        training_texts: all training rows, before samples are drawn of them.
        names: the task's classes in its order.
        order: the same as the model numbers them.
        labels: split -> targets, where the rows have labels.
        remarks: on how the labels were read.
        samples: evaluation splits that are not all the official rows.
    """

    task: Task
    splits: Splits
    training_texts: "Dataset"
    names: tuple[str, ...]
    order: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    remarks: tuple[str, ...]
    samples: frozenset[str]


def check_rows(
    args: TaskArguments, task: Task, sources: Sources, checkpoint: Checkpoint | None
) -> CheckedRows:
    """Read the rows of a task and everything that can be wrong with them; see `prepare_task`."""
    rows, remarks = read_rows(sources, task)
    splits = choose_splits(rows, task, args)
    names = class_names(task, rows["train"])
    own = checkpoint.classes if checkpoint else None
    order = order_of_classes(names, own, checkpoint.name if checkpoint else "")
    check_metrics(task.metrics, order)
    task = replace(task, positive=positive_class(task, names, args.positive_class))
    labels = _labels(splits, task, order)
    check_variety(labels["train"], order)
    samples = splits.samples | (sample_splits(sources) & set(splits.evaluation))
    return CheckedRows(task, splits, rows["train"], names, order, labels, remarks, samples)


def prepare_task(
    args: TaskArguments,
    task: Task,
    sources: Sources,
    checkpoint: Checkpoint | None,
    *,
    tokenizer_name: str | None,
    vocab_size: int,
    tokenizer_type: str = "bpe",
    token_types: bool = False,
    is_decoder: bool = False,
) -> TaskData:
    """Read rows, order the classes, load or train the tokenizer, tokenize, measure the baseline.

    Args:
        args: of the task.
        task: of `task_of(args)`.
        sources: of `find_sources(args, task)`.
        checkpoint: what the run starts from, if anything.
        tokenizer_name: folder or name; None trains one on the training texts.
        vocab_size: of a tokenizer to train.
        tokenizer_type: of a tokenizer to train, "bpe" or "word".
        token_types: the model tells the texts of a pair apart by type.
        is_decoder: texts are as a causal language model reads them, without an end token.

    Raises:
        ValueError: rows that cannot be used, or classes that are not the checkpoint's.
    """
    rows = check_rows(args, task, sources, checkpoint)
    tokenizer = load_or_train_tokenizer(
        tokenizer_name,
        _texts(rows.training_texts),
        vocab_size,
        args.max_length,
        total=len(rows.training_texts) * len(task.text_columns),
        causal=is_decoder,
        kind=tokenizer_type,
    )
    how = Tokenization(tokenizer, args.max_length, token_types, args.preprocessing_num_workers)
    examples, lines = _build_all(rows, how)
    title = f"{task.title} {describe_sources(sources)}."
    description = (title, *lines, *_remarks(rows, left_out(sources, task)))
    return _assemble(rows, tokenizer, examples, description)


def _build_all(rows: CheckedRows, how: Tokenization) -> "tuple[dict[str, Dataset], list[str]]":
    """The examples of each split, and a line on each."""
    parts = {"train": rows.splits.train, **rows.splits.evaluation, **rows.splits.test}
    examples, lines = {}, []
    for split, part in parts.items():
        labels = rows.labels.get(split)
        examples[split], cut = build_examples(part, labels, how, split)
        name = f"{split} (a sample)" if split in rows.samples else split
        lines.append(_line(name, part, labels, rows.order, cut, how.max_length))
    return examples, lines


def _assemble(
    rows: CheckedRows,
    tokenizer: PreTrainedTokenizerFast,
    examples: "Mapping[str, Dataset]",
    description: tuple[str, ...],
) -> TaskData:
    splits, order, labels = rows.splits, rows.order, rows.labels
    scores = TaskScores(rows.task, order)
    constant = scores.constant(labels["train"])
    training, others = labels["train"], {s: x for s, x in labels.items() if s != "train"}
    evaluation = {split: examples[split] for split in splits.evaluation}
    return TaskData(
        task=rows.task,
        order=order,
        tokenizer=tokenizer,
        train=examples["train"],
        evaluation=evaluation,
        test={split: examples[split] for split in splits.test},
        test_index={split: list(part["index"]) for split, part in splits.test.items()},
        scores=scores,
        baseline={split: scores.of_constant(training, own) for split, own in others.items()},
        constant=str(order[int(constant)]) if order else f"{constant:.3f}",
        description=description,
        fingerprint={
            "training": examples_fingerprint(examples["train"], id_bound(tokenizer)),
            **{
                split: examples_fingerprint(part, id_bound(tokenizer))
                for split, part in evaluation.items()
            },
        },
        shows_test=splits.shows_test,
        samples=rows.samples,
    )


def _labels(splits: Splits, task: Task, order: Sequence[str]) -> dict[str, np.ndarray]:
    """Targets of each split that has them; those of test rows may all be hidden, but not some."""
    parts: dict[str, Any] = {"train": splits.train, **splits.evaluation}
    parts |= {name: part for name, part in splits.test.items() if any(part["label"])}
    return {name: targets(part, name, task, order) for name, part in parts.items()}


def _texts(rows: "Dataset") -> Any:
    for row in rows:
        yield row["text"]  # pyright: ignore[reportArgumentType, reportCallIssue]
        if "text_pair" in rows.column_names:
            yield row["text_pair"]  # pyright: ignore[reportArgumentType, reportCallIssue]


def _line(
    split: str,
    rows: "Dataset",
    labels: np.ndarray | None,
    order: Sequence[str],
    cut: int,
    max_length: int,
) -> str:
    """One split in words: rows, classes, cuts, texts without a character."""
    facts = [f"{split}: {len(rows):,} rows"]
    if labels is None:
        facts.append("labels hidden")
    elif order:
        counts = np.bincount(labels, minlength=len(order))
        facts.append(", ".join(f"{n} {c:,}" for n, c in zip(order, counts, strict=True)))
    else:
        facts.append(f"mean {labels.mean():.3f}, from {labels.min():g} to {labels.max():g}")
    facts.append(
        f"{cut:,} cut to {max_length} tokens" if cut else f"none above {max_length} tokens"
    )
    empty = sum(not text for text in _texts(rows))
    if empty:
        facts.append(f"empty texts: {empty:,}")
    return "; ".join(facts)


def _remarks(rows: CheckedRows, broken: int) -> list[str]:
    remarks = [*rows.splits.remarks, *rows.remarks]
    if broken:
        remarks.append(f"rows that are cut off in the files and left out: {broken:,}")
    if rows.names != rows.order:
        remarks.append(
            f"the checkpoint numbers the classes {', '.join(rows.order)}: rows are mapped by name"
        )
    return remarks
