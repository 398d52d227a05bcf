"""The six tasks: what their examples look like and where they are found."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hf_linear_attn.training.lra import images, listops_files, retrieval, texts
from hf_linear_attn.training.lra.symbols import BYTES, LISTOPS, PIXELS, SymbolTable
from hf_linear_attn.training.text_files import DATA_FOLDER_VARIABLE

# Of the downloads that hold all tasks.
_COLLECTIONS = ("", "lra", "lra_release", "lra_release/lra_release")


@dataclass(frozen=True)
class LraTask:
    """One task.

    Attributes:
        name: as in `--task`.
        title: for tables.
        symbols: what ids mean.
        classes: names of the labels 0, 1, …
        max_length: in symbols, without a CLS vector; of each tower.
        cut: whether longer examples are cut, as the protocol has it; otherwise they are refused.
        towers: sequences in an example.
        folders: names of its folder inside a download.
        is_in: whether a folder holds its files.
        files: what they are called, for messages.
        generated: whether examples can be drawn.
    """

    name: str
    title: str
    symbols: SymbolTable
    classes: tuple[str, ...]
    max_length: int
    folders: tuple[str, ...]
    is_in: Callable[[Path], bool]
    files: str
    cut: bool = False
    towers: int = 1
    generated: bool = False


def _has_listops(folder: Path) -> bool:
    return (folder / listops_files.FILES["train"]).is_file()


def _has_retrieval(folder: Path) -> bool:
    return (folder / retrieval.FILES["train"]).is_file()


def _has_scenes(folder: Path) -> bool:
    return any((path.parent / "imgs").is_dir() for path in folder.glob("*/metadata"))


_CONNECTED = ("not connected", "connected")

TASKS = {
    task.name: task
    for task in (
        LraTask(
            "listops", "ListOps", LISTOPS, tuple("0123456789"), 2000,
            ("listops", "listops-1000"), _has_listops,
            "basic_train.tsv, basic_val.tsv and basic_test.tsv", generated=True,
        ),
        LraTask(
            "text", "Text", BYTES, ("negative", "positive"), 4000, ("imdb", "aclImdb", "text"),
            texts.has_texts, "aclImdb's train and test folders, or train.jsonl and test.jsonl",
            cut=True,
        ),
        LraTask(
            "retrieval", "Retrieval", BYTES, ("unrelated", "cited"), 4000,
            ("retrieval", "tsv_data"), _has_retrieval, "new_aan_pairs.{train,eval,test}.tsv",
            cut=True, towers=2,
        ),
        LraTask(
            "image", "Image", PIXELS,
            ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
             "truck"),
            1024, ("image", "cifar10", "cifar-10-batches-py"), images.has_images,
            "cifar-10-batches-py, or parquet or npz files of train and test",
        ),
        LraTask(
            "pathfinder", "Pathfinder", PIXELS, _CONNECTED, 1024, ("pathfinder32",), _has_scenes,
            "<difficulty>/imgs and <difficulty>/metadata", generated=True,
        ),
        LraTask(
            "pathx", "Path-X", PIXELS, _CONNECTED, 16384, ("pathfinder128",), _has_scenes,
            "<difficulty>/imgs and <difficulty>/metadata", generated=True,
        ),
    )
}  # fmt: skip


def find_folder(task: LraTask, data_dir: str) -> Path:
    """The folder of a task's files.

    Args:
        task: whose files.
        data_dir: the folder itself, or one that holds it under its usual name. A relative name that
            the current folder lacks is looked for under the folder in HF_LINEAR_ATTN_DATA.

    Raises:
        ValueError: none there; the message says which task's files are.
    """
    base = Path(data_dir)
    variable = os.environ.get(DATA_FOLDER_VARIABLE)
    if not base.exists() and variable:
        base = Path(variable) / data_dir
    if not base.is_dir():
        raise ValueError(f"data_dir {data_dir!r} is no folder; give the folder of the task's files")
    if task.is_in(base):
        return base
    places = [base / group / name for group in _COLLECTIONS for name in task.folders]
    for place in places:
        if task.is_in(place):
            return place
    others = [other.name for other in TASKS.values() if other.is_in(base)]
    found = f"it holds the files of {' or '.join(others)}" if others else "it has none of them"
    raise ValueError(
        f"data_dir {data_dir!r} has no files of the task {task.name} ({task.files}), neither in "
        f"itself nor in a folder {' or '.join(task.folders)}: {found}"
    )
