"""Rows of any source under the same names: text, text_pair, label (a name or a number), index."""

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.data import load_rows
from hf_linear_attn.training.glue import official_files
from hf_linear_attn.training.glue.embedded import embedded_rows
from hf_linear_attn.training.glue.sources import (
    DataFile,
    Embedded,
    NamedDataset,
    Official,
    Source,
    Sources,
    review_files,
)
from hf_linear_attn.training.glue.tasks import EVALUATION_SPLITS, TEST_SPLITS, LabelForm, Task
from hf_linear_attn.training.text_files import BUILDERS, identity

if TYPE_CHECKING:
    from datasets import ClassLabel, Dataset, Features

Batch = dict[str, list[Any]]
_HUB_SPLITS = {
    "validation_matched": "validation",
    "test_matched": "test",
    **{name: name for name in ("train", *EVALUATION_SPLITS, *TEST_SPLITS)},
}


def read_rows(sources: Sources, task: Task) -> "dict[str, Dataset]":
    """The rows of every split that is there.

    Args:
        sources: of `find_sources`.
        task: gives the columns and the classes.

    Returns:
        split -> text, text_pair (of a pair), label (text: a class's name, a number, or empty where
        there is none) and index.

    Raises:
        ValueError: a file or a data set that cannot be read, a missing column, a text that is
            missing, or an unknown label.
    """
    if isinstance(sources, Embedded):
        return {"train": _generated(embedded_rows, {}, pair=False)}
    if isinstance(sources, NamedDataset):
        splits = load_rows(sources.name, sources.name, name=sources.config)
        known = {_HUB_SPLITS[name]: name for name in splits if name in _HUB_SPLITS}
        if "train" not in known:
            raise ValueError(
                f"data set {sources.name!r}: no split 'train', only {', '.join(splits)}"
            )
        return {
            ours: _unified(
                splits[name], f"{sources.name} ({name})", task, needs_label=_labeled(ours)
            )
            for ours, name in known.items()
        }
    return {split: _read_source(source, split, task) for split, source in sources.items()}


def left_out(sources: Sources, task: Task) -> int:
    """Number of rows that are cut off in the official files and therefore left out."""
    if isinstance(sources, NamedDataset | Embedded):
        return 0
    official = [source for source in sources.values() if isinstance(source, Official)]
    return sum(official_files.count_broken(str(s.path), task, s.layout) for s in official)


def unify(
    batch: Batch,
    indices: list[int],
    texts: Sequence[str],
    label: str | None,
    form: LabelForm,
    classes: Sequence[str] | None,
    source: str,
) -> Batch:
    """Bring rows under our names.

    Args:
        batch: columns of the source.
        indices: of the rows.
        texts: one or two columns.
        label: its column, or None.
        form: whether the column holds names or numbers from 0.
        classes: by number; None where they are not known.
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
    unified["label"] = [_label_text(value, form, classes) for value in given]
    unified["index"] = list(batch.get("idx", indices))
    return unified


def read_reviews(files: list[tuple[tuple[str, int, int], str]]) -> Iterator[dict[str, Any]]:
    """Review files as rows, each file's `identity` with its class."""
    for index, ((name, _, _), label) in enumerate(files):
        yield {"text": Path(name).read_text("utf-8").strip(), "label": label, "index": index}


def _labeled(split: str) -> bool:
    return split == "train" or split in EVALUATION_SPLITS


def _read_source(source: Source, split: str, task: Task) -> "Dataset":
    if isinstance(source, Official):
        given = {"task": task, "layout": source.layout, "identity": identity(source.path)}
        given["file"] = str(source.path)
        return _generated(official_files.read_official, given, pair=len(task.text_columns) > 1)
    if isinstance(source, DataFile):
        suffix = source.path.suffix.lower()
        options: dict[str, Any] = {"data_files": {"train": [str(source.path)]}, "split": "train"}
        if BUILDERS[suffix] == "csv":
            # The word NA is text; an empty cell stays one. A tab-separated file knows no quotes.
            options |= {"na_filter": False} | (
                {"sep": "\t", "quoting": 3} if suffix == ".tsv" else {}
            )
        loaded = load_rows(BUILDERS[suffix], str(source.path), **options)
        return _unified(loaded, str(source.path), task, needs_label=_labeled(split))
    files = [(identity(path), name) for path, name in review_files(source.path)]
    return _generated(read_reviews, {"files": files}, pair=False)


def _generated(read: Any, given: dict[str, Any], pair: bool) -> "Dataset":
    """Rows that a function reads, cached under its code and what it is given."""
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError
    from datasets.fingerprint import Hasher

    features = _features(pair)
    key = Hasher.hash([inspect.getsource(sys.modules[read.__module__]), repr(given)])
    try:
        rows = Dataset.from_generator(read, features, gen_kwargs=given, fingerprint=key)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError):  # what the reader has to say, unwrapped
            raise ValueError(str(error.__cause__)) from error
        raise
    return cast("Dataset", rows)


def _features(pair: bool) -> "Features":
    from datasets import Features, Value

    names = ("text", "text_pair", "label") if pair else ("text", "label")
    return Features({**{name: Value("string") for name in names}, "index": Value("int64")})


def _unified(loaded: Any, source: str, task: Task, needs_label: bool) -> "Dataset":
    features = loaded.features
    texts = [_column(source, features, names, "text") for names in task.text_columns]
    labels = [name for name in task.label_columns if name in features]
    if needs_label and not labels:
        _column(source, features, tuple(task.label_columns), "label")
    label = labels[0] if labels else None
    form: LabelForm = task.label_columns[label] if label else "ids"
    classes = _class_names(features[label]) if label else None
    if classes is not None:
        form = "ids"
    return loaded.map(
        unify,
        with_indices=True,
        batched=True,
        remove_columns=loaded.column_names,
        # A column that keeps its name would keep its type.
        features=_features(len(texts) > 1),
        fn_kwargs={
            "texts": texts,
            "label": label,
            "form": form,
            "classes": classes or task.labels or None,
            "source": source,
        },
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


def _class_names(feature: Any) -> list[str] | None:
    """The names that a data set keeps for the numbers of its label column."""
    from datasets import ClassLabel

    return list(cast("ClassLabel", feature).names) if isinstance(feature, ClassLabel) else None


def _label_text(value: Any, form: LabelForm, classes: Sequence[str] | None) -> str:
    """A label as text: the class's name where the number is one, empty where it is missing."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        value = int(value) if form == "ids" else str(value).lower()
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    text = text.strip()
    if form == "ids" and text == "-1":
        return ""  # hidden, as in published test sets
    if form == "ids" and classes and text.isdecimal() and int(text) < len(classes):
        return classes[int(text)]
    return text
