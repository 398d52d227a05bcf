"""Rows of any source under the same names: text, text_pair, label (a name or a number), index."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hf_linear_attn.training.data import load_rows, without_rows
from hf_linear_attn.training.glue import official_files
from hf_linear_attn.training.glue.columns import Named, row_features, unify_splits
from hf_linear_attn.training.glue.embedded import embedded_rows
from hf_linear_attn.training.glue.sources import (
    DataFile,
    Embedded,
    NamedDataset,
    Official,
    ReviewFolder,
    Sources,
    review_files,
)
from hf_linear_attn.training.glue.tasks import EVALUATION_SPLITS, TEST_SPLITS, Task
from hf_linear_attn.training.text_files import BUILDERS, identity

if TYPE_CHECKING:
    from datasets import Dataset

_HUB_SPLITS = {
    "validation_matched": "validation",
    "test_matched": "test",
    **{name: name for name in ("train", *EVALUATION_SPLITS, *TEST_SPLITS)},
}


class Rows(NamedTuple):
    """What was read.

    Attributes:
        splits: split -> text, text_pair (of a pair), label (text: a class's name, a number, or
            empty where there is none) and index.
        remarks: what people should know of how the labels were read.
    """

    splits: "dict[str, Dataset]"
    remarks: tuple[str, ...] = ()


def read_rows(sources: Sources, task: Task) -> Rows:
    """The rows of every split that is there.

    Args:
        sources: of `find_sources`.
        task: gives the columns and the classes.

    Raises:
        ValueError: a file or a data set that cannot be read or has no rows, a missing column, a
            text that is missing, or labels that cannot be read.
    """
    if isinstance(sources, Embedded):
        return Rows({"train": _embedded()})
    if isinstance(sources, NamedDataset):
        named, others = _named_splits(sources), {}
    else:
        files = {s: source for s, source in sources.items() if isinstance(source, DataFile)}
        named = {split: _load_file(source.path, task) for split, source in files.items()}
        others = {
            split: _read_official(source, task)
            if isinstance(source, Official)
            else _read_reviews(source)
            for split, source in sources.items()
            if not isinstance(source, DataFile)
        }
    for rows, source in named.values():
        if not len(rows):
            raise ValueError(without_rows(source))
    unified, remarks = unify_splits(named, task)
    order = named if isinstance(sources, NamedDataset) else sources
    return Rows({split: {**unified, **others}[split] for split in order}, tuple(remarks))


def left_out(sources: Sources, task: Task) -> int:
    """Number of rows that are cut off in the official files and therefore left out."""
    if isinstance(sources, NamedDataset | Embedded):
        return 0
    official = [source for source in sources.values() if isinstance(source, Official)]
    return sum(official_files.count_broken(str(s.path), task, s.layout) for s in official)


def read_reviews(files: list[tuple[tuple[str, int, int], str]]) -> Iterator[dict[str, Any]]:
    """Review files as rows, each file's `identity` with its class.

    Raises:
        ValueError: one that is not UTF-8.
    """
    for index, ((name, _, _), label) in enumerate(files):
        try:
            text = Path(name).read_text("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not UTF-8 text ({error}); convert it to UTF-8") from error
        yield {"text": text, "label": label, "index": index}


def _embedded() -> "Dataset":
    """Not cached: it would not follow a change of the corpus, which comes with Python."""
    from datasets import Dataset

    return Dataset.from_list(list(embedded_rows()), features=row_features(pair=False))


def _named_splits(sources: NamedDataset) -> dict[str, Named]:
    splits = load_rows(sources.name, sources.name, name=sources.config)
    known = {_HUB_SPLITS[name]: name for name in splits if name in _HUB_SPLITS}
    if "train" not in known:
        raise ValueError(f"data set {sources.name!r}: no split 'train', only {', '.join(splits)}")
    return {ours: Named(splits[name], f"{sources.name} ({name})") for ours, name in known.items()}


def _load_file(path: Path, task: Task) -> Named:
    suffix = path.suffix.lower()
    options: dict[str, Any] = {"data_files": {"train": [str(path)]}, "split": "train"}
    if BUILDERS[suffix] == "csv":
        # What looks like a number or a truth value is text, as 007 or True; so is the word NA, and
        # an empty cell stays one.
        texts = [name for names in task.text_columns for name in names]
        options |= {
            "na_filter": False,
            "converters": dict.fromkeys([*texts, *task.label_columns], str),
        }
        # A tab-separated file knows no quotes.
        options |= {"sep": "\t", "quoting": 3} if suffix == ".tsv" else {}
    return Named(load_rows(BUILDERS[suffix], str(path), **options), str(path))


def _read_official(source: Official, task: Task) -> "Dataset":
    given = {"task": task, "layout": source.layout, "identity": identity(source.path)}
    given["file"] = str(source.path)
    return _generated(official_files.read_official, given, pair=len(task.text_columns) > 1)


def _read_reviews(source: ReviewFolder) -> "Dataset":
    files = [(identity(path), name) for path, name in review_files(source.path)]
    if not files:
        raise ValueError(without_rows(str(source.path)))
    return _generated(read_reviews, {"files": files}, pair=False)


def _generated(read: Any, given: dict[str, Any], pair: bool) -> "Dataset":
    """Rows that a function reads, cached under its code and what it is given."""
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError
    from datasets.fingerprint import Hasher

    features = row_features(pair)
    key = Hasher.hash([inspect.getsource(sys.modules[read.__module__]), repr(given)])
    try:
        rows = Dataset.from_generator(read, features, gen_kwargs=given, fingerprint=key)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError):  # what the reader has to say, unwrapped
            raise ValueError(str(error.__cause__)) from error
        raise
    return cast("Dataset", rows)
