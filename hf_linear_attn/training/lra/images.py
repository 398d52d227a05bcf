"""CIFAR-10 as grey levels: one pixel after the other, row by row.

Known layouts: `cifar-10-batches-py` (or its files in the folder itself); `*train*.parquet` and
`*test*.parquet` with an image and a label column; `*gray*train*.npz` and `*gray*test*.npz` with
`images` uint8 (n, 32, 32) and `labels`. A tenth of the training images is held out, as in Long
Range Arena.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hf_linear_attn.training.lra.damaged import reading
from hf_linear_attn.training.lra.splits import RawSplit, hold_out, single

SIDE = 32
# TensorFlow's rgb_to_grayscale, which converts to numbers below 1 and back by truncation.
_WEIGHTS = np.array([0.2989, 0.5870, 0.1140], dtype=np.float32)
_VALIDATION_SHARE = 0.1
# All that the released files need; another name in a pickle could run anything.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def has_images(folder: Path) -> bool:
    """Whether a folder holds one of the layouts."""
    return bool(_batches(folder, "train") or _find(folder, "train"))


def read_images(folder: Path) -> dict[str, RawSplit]:
    """Read the images and hold out the validation split.

    Args:
        folder: one that `has_images`.

    Raises:
        ValueError: a split that is not there, or images of another kind.
    """
    whole, test = _read(folder, "train"), _read(folder, "test")
    train, validation = hold_out(whole, [_VALIDATION_SHARE], folder)
    return {"train": train, "validation": validation, "test": test}


def grey(rgb: np.ndarray) -> np.ndarray:
    """Grey levels of colours, uint8 (…, 3) -> uint8 (…)."""
    fractions = rgb.astype(np.float32) * np.float32(1 / 255)
    return (fractions @ _WEIGHTS * np.float32(255.5)).astype(np.uint8)


def _read(folder: Path, split: str) -> RawSplit:
    batches = _batches(folder, split)
    files = batches or _find(folder, split)
    if not files:
        raise ValueError(f"{folder}: the {split} images of CIFAR-10 are missing")
    read = _read_batch if batches else _read_npz if files[0].suffix == ".npz" else _read_parquet
    pixels, labels = zip(*(_checked(read(file), file) for file in files), strict=True)
    images = np.concatenate(pixels)
    return single(list(images.reshape(len(images), -1)), np.concatenate(labels))


def _checked(content: tuple[np.ndarray, np.ndarray], file: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = content
    if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8:
        raise ValueError(
            f"{file}: got images of shape {images.shape[1:]} and type {images.dtype}, expected "
            f"({SIDE}, {SIDE}) of uint8"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{file}: got {len(images):,} images and labels of shape {labels.shape} and type "
            f"{labels.dtype}, expected a whole number an image; put the released file in its place"
        )
    return images, labels.astype(np.int64)


def _find(folder: Path, split: str) -> list[Path]:
    patterns = (f"*gray*{split}*.npz", f"*{split}*.parquet", f"plain_text/{split}*.parquet")
    for pattern in patterns:
        found = sorted(folder.glob(pattern))
        if found:
            return found
    return []


def _batches(folder: Path, split: str) -> list[Path]:
    name = "data_batch_*" if split == "train" else "test_batch"
    return sorted([*folder.glob(name), *folder.glob(f"cifar-10-batches-py/{name}")])


def _read_npz(file: Path) -> tuple[np.ndarray, np.ndarray]:
    with reading(file, "an npz file of images"), np.load(file) as opened:
        content = dict(opened)
    if {"images", "labels"} - set(content):
        raise ValueError(f"{file}: got {', '.join(content)}, expected images and labels")
    return content["images"], content["labels"]


def _read_parquet(file: Path) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow.parquet as parquet

    with reading(file, "a parquet file"):
        table = parquet.read_table(file)
    column = next((name for name in ("img", "image") if name in table.column_names), None)
    if column is None or "label" not in table.column_names:
        raise ValueError(
            f"{file}: got the columns {', '.join(table.column_names)}, expected img (or image) and "
            "label"
        )
    with reading(file, "a parquet file of pictures and their labels"):
        images = [_decoded(entry["bytes"]) for entry in table[column].to_pylist()]
        return np.stack(images), np.array(table["label"].to_pylist(), dtype=np.int64)


def _decoded(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return grey(np.asarray(image.convert("RGB")))


def _read_batch(file: Path) -> tuple[np.ndarray, np.ndarray]:
    with reading(file, "a batch of CIFAR-10"), open(file, "rb") as opened:
        content = _NumbersOnly(opened, encoding="bytes").load()
        # Three planes of one colour each.
        colours = np.asarray(content[b"data"]).reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        return grey(colours), np.array(content[b"labels"], dtype=np.int64)


class _NumbersOnly(pickle.Unpickler):
    """Reads arrays and lists, and refuses everything that could be run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ValueError(f"a CIFAR-10 batch holds {module}.{name}: not the released file")
        return super().find_class(module, name)
