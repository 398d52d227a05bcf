"""Named columns of any source under our names: text, text_pair, label and index."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.glue import label_columns
from hf_linear_attn.training.glue.label_columns import LabelColumn, read_label_column
from hf_linear_attn.training.glue.tasks import EVALUATION_SPLITS, LabelForm, Task

if TYPE_CHECKING:
    from datasets import ClassLabel, Dataset, Features

Batch = dict[str, list[Any]]


class Named(NamedTuple):
    """Rows as a source has them.

    Attributes:
        rows: with the source's own columns.
        source: file, or data set and split, for messages.
    """

    rows: "Dataset"
    source: str


class _Labels(NamedTuple):
    """A column of labels before it is read.

    Attributes:
        column: its name.
        form: what stands in it.
        classes: by number; None where they are not known.
        from_zero: its numbers are those of `classes`.
    """

    column: str
    form: LabelForm
    classes: tuple[str, ...] | None
    from_zero: bool = False


def unify_splits(given: Mapping[str, Named], task: Task) -> "tuple[dict[str, Dataset], list[str]]":
    """Bring the rows of all splits under our names.

    Args:
        given: by split.
        task: gives the columns and the classes.

    Returns:
        split -> text, text_pair (of a pair), label (text, empty where there is none) and index; and
        what people should know of how the labels were read.

    Raises:
        ValueError: a missing column, a text that is missing, or labels that cannot be read.
    """
    found = {split: _labels(named, split, task) for split, named in given.items()}
    readers: dict[_Labels, LabelColumn] = {}
    remarks = []
    for labels in dict.fromkeys(filter(None, found.values())):
        mine = {split: named for split, named in given.items() if found[split] == labels}
        values = {repr(v): v for named in mine.values() for v in named.rows.unique(labels.column)}
        where = f"{', '.join(n.source for n in mine.values())}: column {labels.column!r}"
        readers[labels], remark = read_label_column(
            values.values(), *labels[1:3], where, labels.from_zero
        )
        if remark:
            remarks.append(remark.replace(where, f"column {labels.column!r}"))
    unified = {}
    for split, named in given.items():
        labels = found[split]
        reader = readers[labels] if labels else None
        unified[split] = _unified(named, task, labels.column if labels else None, reader)
    return unified, remarks


def unify(
    batch: Batch,
    indices: list[int],
    texts: Sequence[str],
    label: str | None,
    reader: LabelColumn | None,
    source: str,
) -> Batch:
    """Bring rows under our names.

    Args:
        batch: columns of the source.
        indices: of the rows.
        texts: one or two columns.
        label: its column, or None.
        reader: of that column.
        source: for messages.

    Raises:
        ValueError: a text that is missing.
    """
    unified: Batch = {}
    for name, column in zip(("text", "text_pair"), texts, strict=False):
        for row, text in zip(indices, batch[column], strict=True):
            if not isinstance(text, str):
                raise ValueError(
                    f"{source}, row {row}: column {column!r} holds {text!r}, expected text"
                )
        unified[name] = [text.strip() for text in batch[column]]
    given = batch[label] if label else [None] * len(indices)
    read = (reader or LabelColumn()).text
    unified["label"] = [read(value) for value in given]
    unified["index"] = list(batch.get("idx", indices))
    return unified


def row_features(pair: bool) -> "Features":
    """The columns of rows under our names."""
    from datasets import Features, Value

    names = ("text", "text_pair", "label") if pair else ("text", "label")
    return Features({**{name: Value("string") for name in names}, "index": Value("int64")})


def _labels(named: Named, split: str, task: Task) -> _Labels | None:
    features: Any = named.rows.features
    columns = [name for name in task.label_columns if name in features]
    if not columns:
        if split == "train" or split in EVALUATION_SPLITS:
            _column(named.source, features, tuple(task.label_columns), "label")
        return None
    _check_single(features[columns[0]], f"{named.source}: column {columns[0]!r}")
    own = _class_names(features[columns[0]])
    if own is not None:
        return _Labels(columns[0], "ids", own, from_zero=True)
    return _Labels(columns[0], task.label_columns[columns[0]], task.labels)


def _check_single(feature: Any, column: str) -> None:
    from datasets import ClassLabel, Value

    if not isinstance(feature, ClassLabel | Value):
        raise ValueError(
            f"{column} holds values of several kinds, lists or mappings ({feature}); expected "
            "words or numbers, one a row"
        )


def _unified(named: Named, task: Task, label: str | None, reader: LabelColumn | None) -> "Dataset":
    from datasets.fingerprint import Hasher

    rows, source = named
    features: Any = rows.features
    texts = [_column(source, features, names, "text") for names in task.text_columns]
    given = {"texts": texts, "label": label, "reader": reader, "source": source}
    code = [inspect.getsource(module) for module in (sys.modules[__name__], label_columns)]
    return rows.map(
        unify,
        with_indices=True,
        batched=True,
        remove_columns=rows.column_names,
        # A column that keeps its name would keep its type.
        features=row_features(len(texts) > 1),
        fn_kwargs=given,
        # By itself the cache would not follow a change of the reading rule.
        new_fingerprint=Hasher.hash([rows._fingerprint, code, repr(given)]),
        desc=f"Reading {Path(source).name}",
    )


def _column(source: str, features: Any, names: Sequence[str], what: str) -> str:
    for name in names:
        if name in features:
            return name
    hint = did_you_mean(names[0], features)
    raise ValueError(
        f"{source}: no column {' or '.join(map(repr, names))} for the {what}, only "
        f"{', '.join(features)}{hint}; name it with --{what}_column, or give the file of this task"
    )


def _class_names(feature: Any) -> tuple[str, ...] | None:
    """The names that a data set keeps for the numbers of its label column."""
    from datasets import ClassLabel

    return tuple(cast("ClassLabel", feature).names) if isinstance(feature, ClassLabel) else None
