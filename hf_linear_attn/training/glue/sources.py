"""Where the rows of each split are: an official folder, files, a data set by name, or embedded.

Only the file system is looked at here, so that what is missing shows before anything is read.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from yaml import YAMLError

from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.official_files import check_file
from hf_linear_attn.training.glue.tasks import (
    EVALUATION_SPLITS,
    TASKS,
    TEST_SPLITS,
    Task,
    TsvLayout,
)
from hf_linear_attn.training.text_files import DATA_FOLDER_VARIABLE, find_file

_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
# The names of data files by split; a sample of the training rows may stand in for both.
_STEMS = {
    "train": ("train", "sample_train"),
    "validation": ("dev", "validation", "validation_matched", "sample_dev"),
    "validation_mismatched": ("validation_mismatched",),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
}
_SAMPLE = "sample_"
_REVIEW_CLASSES = ("neg", "pos")


@dataclass(frozen=True)
class Official:
    """An official tab-separated file."""

    path: Path
    layout: TsvLayout


@dataclass(frozen=True)
class DataFile:
    """A file with named columns."""

    path: Path


@dataclass(frozen=True)
class ReviewFolder:
    """A folder of the aclImdb release: one text file a review, in `neg` and `pos`."""

    path: Path


@dataclass(frozen=True)
class NamedDataset:
    """A data set on the Hub, or a local folder that loads like one; it has all splits."""

    name: str
    config: str | None


@dataclass(frozen=True)
class Embedded:
    """Sentences of the embedded corpus."""


Source = Official | DataFile | ReviewFolder
Sources = Mapping[str, Source] | NamedDataset | Embedded


def find_sources(args: TaskArguments, task: Task) -> Sources:
    """Where the rows of a task are.

    Raises:
        ValueError: nothing named, no such file or folder, the folder or the file of another task,
            or no training rows.
    """
    if args.dataset_name:
        config = args.dataset_config_name
        if config is None and task.hub and task.hub[0] == args.dataset_name:
            config = task.hub[1]
        elif config is None and task.hub and Path(args.dataset_name).is_dir():
            config = _config_of_folder(Path(args.dataset_name), task)
        return NamedDataset(args.dataset_name, config)
    if args.train_file:
        named = {"train": args.train_file, "validation": args.validation_file}
        named["test"] = args.test_file
        return {split: _data_file(name) for split, name in named.items() if name}
    if args.data_dir:
        return _in_folder(_task_folder(_existing(args.data_dir), task), task)
    if task.name == "embedded":
        return Embedded()
    by_name = f", or --dataset_name {task.hub[0]}" if task.hub else ""
    raise ValueError(
        f"task {task.name} needs its data: give --data_dir with the files, --train_file and "
        f"--validation_file{by_name}"
    )


def describe_sources(sources: Sources) -> str:
    """One sentence on where the rows come from, without folders of the machine."""
    if isinstance(sources, Embedded):
        return (
            "The embedded corpus: Python's reference topics and the standard library's docstrings"
        )
    if isinstance(sources, NamedDataset):
        name = Path(sources.name).name if Path(sources.name).is_dir() else sources.name
        return f"Data set {name}" + (f", configuration {sources.config}" if sources.config else "")
    files = (f"{source.path.parent.name}/{source.path.name}" for source in sources.values())
    return "Files: " + ", ".join(files)


def sample_splits(sources: Sources) -> frozenset[str]:
    """The splits whose file says by its name that it is a sample of the official rows."""
    if not isinstance(sources, Mapping):
        return frozenset()
    return frozenset(s for s, source in sources.items() if source.path.stem.startswith(_SAMPLE))


def review_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of an aclImdb folder with their class, sorted by name."""
    for name in _REVIEW_CLASSES:
        for path in sorted((folder / name).glob("*.txt")):
            yield path, name


def _data_file(name: str) -> DataFile:
    path = find_file(name)
    if path.suffix.lower() == ".txt":
        raise ValueError(f"file {name!r}: a .txt file has no columns; expected {_SUFFIXES} or .tsv")
    return DataFile(path)


def _existing(name: str) -> Path:
    path, base = Path(name), os.environ.get(DATA_FOLDER_VARIABLE)
    if not path.exists() and base:
        path = Path(base) / name
    if not path.is_dir():
        raise ValueError(f"data_dir {name} is no folder" if path.exists() else _absent(name))
    return path


def _absent(name: str) -> str:
    return f"data_dir {name} does not exist in {os.getcwd()!r}"


def _task_folder(folder: Path, task: Task) -> Path:
    """The task's own folder: below the one named, or that one."""
    for name in (task.folder, "aclImdb" if task.name == "imdb" else None):
        if name and (folder / name).is_dir():
            return folder / name
    other = next((t for t in TASKS.values() if t.folder == folder.name and t != task), None)
    if other is not None and folder.name != task.folder:
        raise ValueError(
            f"data_dir {folder} is the folder of task {other.name}, but the task is {task.name}"
        )
    return folder


def _in_folder(folder: Path, task: Task) -> Mapping[str, Source]:
    splits = ("train", *EVALUATION_SPLITS, *TEST_SPLITS)
    found = {split: source for split in splits if (source := _find_split(folder, task, split))}
    if "train" not in found:
        files = [layout.file for layout in task.layouts.values()][:1]
        names = [*files, *(f"{stem}.jsonl" for stem in _STEMS["train"])]
        inside = sorted(path.name for path in folder.iterdir())[:8]
        raise ValueError(
            f"data_dir {folder} has no training rows of task {task.name}: expected a folder "
            f"{task.folder} or a file {' or '.join(names)}, got {', '.join(inside) or 'nothing'}"
        )
    for source in found.values():
        if isinstance(source, Official):
            check_file(source.path, task, source.layout)
    return found


def _find_split(folder: Path, task: Task, split: str) -> Source | None:
    layout = task.layouts.get(split)
    if layout is not None and (folder / layout.file).is_file():
        return Official(find_file(str(folder / layout.file)), layout)
    for stem in _STEMS.get(split, ()):
        for suffix in _SUFFIXES:
            if (folder / f"{stem}{suffix}").is_file():
                return DataFile(find_file(str(folder / f"{stem}{suffix}")))
    reviews = folder / split
    if task.name == "imdb" and all((reviews / name).is_dir() for name in _REVIEW_CLASSES):
        return ReviewFolder(reviews)
    return None


def _config_of_folder(folder: Path, task: Task) -> str | None:
    """The task's configuration where a local folder's README names it."""
    from huggingface_hub import DatasetCard

    readme = folder / "README.md"
    if not readme.is_file() or task.hub is None:
        return None
    try:
        configs: Sequence[dict] = DatasetCard.load(readme).data.to_dict().get("configs") or ()
        names = [entry.get("config_name") for entry in configs]
    except (YAMLError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{readme}: its header cannot be read as that of a data set") from error
    return task.hub[1] if task.hub[1] in names else None
