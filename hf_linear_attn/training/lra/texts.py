"""Byte-level IMDB: the released folder, or files of rows.

Known layouts: `aclImdb/{train,test}/{neg,pos}/*.txt`; `train.jsonl` and `test.jsonl`, or
`train*.parquet` and `test*.parquet`, with columns `text` and `label` (0 = negative, 1 = positive).
Raw bytes with their `<br />`, as in Long Range Arena. There the test set is also validated on; here
a share of the training reviews is held out.
"""

import json
from pathlib import Path

import numpy as np

from hf_linear_attn.training.lra.damaged import reading
from hf_linear_attn.training.lra.splits import RawSplit, hold_out, single
from hf_linear_attn.training.lra.symbols import byte_ids

_CLASSES = ("neg", "pos")


def has_texts(folder: Path) -> bool:
    """Whether a folder holds one of the layouts."""
    return (folder / "train" / "neg").is_dir() or bool(_row_files(folder, "train"))


def read_texts(folder: Path, validation_fraction: float) -> dict[str, RawSplit]:
    """Read the reviews and hold out the validation split.

    Args:
        folder: one that `has_texts`.
        validation_fraction: share of the training reviews.

    Raises:
        ValueError: a split that is not there, other columns, or another label.
    """
    read = _read_folder if (folder / "train" / "neg").is_dir() else _read_rows
    whole, test = read(folder, "train"), read(folder, "test")
    advice = ", or change validation_fraction"
    train, validation = hold_out(whole, [validation_fraction], folder, advice)
    return {"train": train, "validation": validation, "test": test}


def _read_folder(folder: Path, split: str) -> RawSplit:
    from tqdm.auto import tqdm

    files = [
        (path, label)
        for label, name in enumerate(_CLASSES)
        for path in sorted((folder / split / name).glob("*.txt"))
    ]
    if not files:
        raise ValueError(f"{folder / split}: no reviews in neg/*.txt and pos/*.txt")
    bar = tqdm(files, f"Reading reviews ({split})", delay=2, leave=False, disable=None)
    return single([byte_ids(path.read_bytes()) for path, _ in bar], [label for _, label in files])


def _read_rows(folder: Path, split: str) -> RawSplit:
    from datasets import load_dataset

    files = _row_files(folder, split)
    if not files:
        raise ValueError(f"{folder}: the {split} reviews are missing ({split}.jsonl or .parquet)")
    kind = "json" if files[0].suffix == ".jsonl" else "parquet"
    for file in files if kind == "json" else []:
        _check_lines(file)
    with reading(files[0], f"a {kind} file of reviews (it or those beside it)"):
        rows = load_dataset(kind, data_files=[str(file) for file in files], split="train")
    missing = {"text", "label"} - set(rows.column_names)
    if missing:
        raise ValueError(
            f"{files[0]}: got the columns {', '.join(rows.column_names)}, expected text and label; "
            f"{' and '.join(sorted(missing))} is not there"
        )
    texts = [byte_ids(_text(text, files[0]).encode("utf-8")) for text in rows["text"]]
    return single(texts, np.array([_label(label, files[0]) for label in rows["label"]]))


def _row_files(folder: Path, split: str) -> list[Path]:
    for pattern in (f"{split}.jsonl", f"{split}*.parquet", f"plain_text/{split}*.parquet"):
        found = sorted(folder.glob(pattern))
        if found:
            return found
    return []


def _check_lines(file: Path) -> None:
    """Name a line that is no JSON; the reader of whole files does not."""
    with reading(file, "lines of JSON"):
        lines = file.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            is_row = not line.strip() or isinstance(json.loads(line), dict)
        except ValueError:
            is_row = False
        if not is_row:
            raise ValueError(
                f"{file}, line {number}: got {line[:60]!r}, expected a JSON object with text and "
                "label; mend the line, or put the whole file in its place"
            )


def _text(text: object, file: Path) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{file}: got the text {text!r}, expected a string")
    return text


def _label(label: object, file: Path) -> int:
    if label in _CLASSES:
        return _CLASSES.index(str(label))
    if label in (0, 1):
        return int(str(int(label)))  # pyright: ignore[reportArgumentType]
    raise ValueError(f"{file}: got the label {label!r}, expected 0 (negative) or 1 (positive)")
