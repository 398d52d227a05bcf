"""Pairs of papers of the ACL anthology: does one cite the other?

`new_aan_pairs.{train,eval,test}.tsv`: label (written as a float), two ids and two texts a line,
split by TABs; no header, no quoting. As in Long Range Arena, the first 10,000 bytes of a text are
read.
"""

from pathlib import Path

import numpy as np

from hf_linear_attn.training.lra.splits import RawSplit
from hf_linear_attn.training.lra.symbols import byte_ids

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
READ_BYTES = 10_000
_FIELDS = 5


def read_retrieval(folder: Path) -> dict[str, RawSplit]:
    """Read the three files.

    Args:
        folder: holds them.

    Raises:
        ValueError: a line that is not a pair of papers; names file and line.
    """
    return {split: _read_file(folder / name) for split, name in FILES.items()}


def _read_file(path: Path) -> RawSplit:
    from tqdm.auto import tqdm

    rows, labels = [], []
    if not path.is_file():
        raise ValueError(f"{path} is missing; the task needs {', '.join(FILES.values())}")
    with open(path, "rb") as file:
        bar = tqdm(file, f"Reading {path.name}", delay=2, leave=False, disable=None)
        for number, line in enumerate(bar, start=1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            label = _label(fields[0])
            if len(fields) != _FIELDS or label is None:
                raise ValueError(
                    f"{path}, line {number}: got {len(fields)} fields and the label "
                    f"{fields[0][:20].decode('utf-8', 'replace')!r}, expected {_FIELDS} fields, "
                    "the first of which is the label, 0 or 1"
                )
            rows.append(tuple(byte_ids(text[:READ_BYTES]) for text in fields[3:]))
            labels.append(label)
    if not rows:
        raise ValueError(f"{path}: no pair in this file")
    return RawSplit(rows, np.array(labels, dtype=np.int64))


def _label(text: bytes) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number in (0, 1) else None
