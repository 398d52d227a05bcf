"""A file that is missing or damaged is one mistake that names it and says what to do."""

import io
import json
import os
import pickle
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from hf_linear_attn.training.lra import listops_files, retrieval
from hf_linear_attn.training.lra.arguments import GeneratorArguments
from hf_linear_attn.training.lra.images import read_images
from hf_linear_attn.training.lra.listops_files import read_listops
from hf_linear_attn.training.lra.pathfinder_files import generate_pathfinder, read_pathfinder
from hf_linear_attn.training.lra.retrieval import read_retrieval
from hf_linear_attn.training.lra.splits import RawSplit, hold_out, single
from hf_linear_attn.training.lra.texts import read_texts


def listops(folder):
    for name in listops_files.FILES.values():
        (folder / name).write_bytes(b"Source\tTarget\r\n[MIN 1 2 ]\t1\r\n")


def pairs(folder):
    for name in retrieval.FILES.values():
        (folder / name).write_text("0\ta\tb\tx\ty\n")


def reviews(folder):
    for split in ("train", "test"):
        rows = [json.dumps({"text": f"text {n}", "label": n % 2}) for n in range(20)]
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")


def arrays(folder, labels=None):
    for split in ("train", "test"):
        images = np.zeros((20, 32, 32), np.uint8)
        found = np.arange(20) % 10 if labels is None else labels
        np.savez(folder / f"cifar10_gray_{split}.npz", images=images, labels=found)


def batches(folder, labels=20, data=20):
    for name in ("data_batch_1", "test_batch"):
        planes = np.zeros((data, 3072), np.uint8)
        content = {b"data": planes, b"labels": [n % 10 for n in range(labels)]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def pictures(folder):
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32)).save(buffer, format="PNG")
    images = [{"bytes": buffer.getvalue() if n else b"no picture", "path": "x"} for n in range(20)]
    for split in ("train", "test"):
        table = pa.table({"img": images, "label": [n % 10 for n in range(20)]})
        parquet.write_table(table, folder / f"{split}-0.parquet")


def scenes(folder):
    easy = GeneratorArguments(pathfinder_contour_length=6).scenes("pathfinder")
    generate_pathfinder(folder, easy, 10, seed=5)


def read_scenes(folder):
    return read_pathfinder(folder, 32, 6)


def read_reviews(folder):
    return read_texts(folder, 0.1)


@pytest.mark.parametrize(
    ("write", "file", "content", "read"),
    [
        (listops, "basic_val.tsv", None, read_listops),
        (listops, "basic_test.tsv", b"Source\tTarget\n\xff\t1\n", read_listops),
        (pairs, "new_aan_pairs.eval.tsv", None, read_retrieval),
        (pairs, "new_aan_pairs.test.tsv", b"", read_retrieval),
        (reviews, "train.jsonl", b'{"text": "a", "label": 1}\n{"text": "b", \n', read_reviews),
        (reviews, "train.jsonl", b'{"text": "a", "label": 1}\n[1]\n', read_reviews),
        (reviews, "train.jsonl", b'{"text": "\xff", "label": 1}\n', read_reviews),
        (reviews, "train.jsonl", b'{"text": 7, "label": 1}\n', read_reviews),
        (arrays, "cifar10_gray_train.npz", b"PK\x03\x04 cut off", read_images),
        (arrays, "cifar10_gray_train.npz", b"", read_images),
        (batches, "data_batch_1", b"no pickle", read_images),
        (batches, "data_batch_1", pickle.dumps({b"data": [1]}), read_images),
        (batches, "data_batch_1", b"", read_images),
        (pictures, "train-0.parquet", b"PAR1 nothing", read_images),
        (pictures, "train-0.parquet", ..., read_images),
        (scenes, "curv_baseline/imgs/0/sample_3.png", b"no picture", read_scenes),
        (scenes, "curv_baseline/imgs/0/sample_3.png", b"\x89PNG\r\n\x1a\n", read_scenes),
        (scenes, "curv_baseline/metadata/0.npy", b"\x93NUMPY\xff", read_scenes),
    ],
)  # fmt: skip
def test_what_is_missing_or_damaged_is_named(tmp_path, write, file, content, read):
    write(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    elif content is not ...:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / file))) as mistake:
        read(tmp_path)
    assert type(mistake.value) is ValueError
    assert "\n" not in str(mistake.value)


def test_the_line_of_a_damaged_file_of_reviews_is_said(tmp_path):
    reviews(tmp_path)
    (tmp_path / "test.jsonl").write_text('{"text": "a", "label": 1}\n\n{"text": \n')
    with pytest.raises(ValueError, match=r"test\.jsonl, line 3: got '\{\"text\": '"):
        read_reviews(tmp_path)


@pytest.mark.parametrize("labels", [np.arange(19), np.arange(21), np.zeros((20, 1), int),
                                    np.full(20, 0.5)])  # fmt: skip
def test_images_and_labels_of_different_number_or_kind_are_refused(tmp_path, labels):
    arrays(tmp_path, labels)
    with pytest.raises(ValueError, match=r"cifar10_gray_train\.npz: got 20 images and labels of"):
        read_images(tmp_path)


@pytest.mark.parametrize("count", [19, 21])
def test_a_batch_with_another_number_of_labels_is_refused(tmp_path, count):
    batches(tmp_path, labels=count)
    with pytest.raises(ValueError, match="data_batch_1: got 20 images and labels"):
        read_images(tmp_path)


@pytest.mark.parametrize("count", [1, 3])
def test_a_split_has_a_label_an_example(count):
    with pytest.raises(ValueError, match="got 2 examples and labels of shape"):
        RawSplit([(np.ones(1),)] * 2, np.zeros(count, np.int64))


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_split_that_would_be_empty_is_refused(tmp_path, share):
    rows = single([np.ones(1)] * 4, [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"4 examples are too few: .* give more examples"):
        hold_out(rows, [share], tmp_path)
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": 1}\n')
    (tmp_path / "test.jsonl").write_text('{"text": "a", "label": 1}\n')
    with pytest.raises(ValueError, match="or change validation_fraction"):
        read_texts(tmp_path, share)


def test_the_refused_pickle_is_named_and_never_run(tmp_path):
    batches(tmp_path)

    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    (tmp_path / "test_batch").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ValueError, match=r"test_batch cannot be read .* not the released file"):
        read_images(tmp_path)
    assert not (tmp_path / "harm").exists()
