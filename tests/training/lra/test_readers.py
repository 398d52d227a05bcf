"""Text, retrieval and images: the layouts that are known, and what is refused."""

import io
import json
import os
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from hf_linear_attn.training.lra.images import grey, read_images
from hf_linear_attn.training.lra.retrieval import FILES, read_retrieval
from hf_linear_attn.training.lra.symbols import byte_ids
from hf_linear_attn.training.lra.texts import read_texts
from tests.training.lra.real_data import needs, real

REVIEWS = {
    split: [(f"{split} {n} é<br />", n % 2) for n in range(20)] for split in ("train", "test")
}


def as_folder(folder):
    for split, rows in REVIEWS.items():
        for number, (text, label) in enumerate(rows):
            file = folder / split / ("neg", "pos")[label] / f"{number:02}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())


def as_jsonl(folder):
    for split, rows in REVIEWS.items():
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))


def as_parquet(folder):
    for split, rows in REVIEWS.items():
        texts, labels = zip(*rows, strict=True)
        table = pa.table({"text": texts, "label": labels})
        parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")


@pytest.mark.parametrize("write", [as_folder, as_jsonl, as_parquet])
def test_reviews_are_read_as_bytes_and_never_validated_on_the_test_set(tmp_path, write):
    write(tmp_path)
    splits = read_texts(tmp_path, 0.2)
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 16, "validation": 4, "test": 20
    }  # fmt: skip
    known = {byte_ids(text.encode()).tobytes(): (split, label)
             for split, rows in REVIEWS.items() for text, label in rows}  # fmt: skip
    for name, split in splits.items():
        for (ids,), label in zip(split.rows, split.labels, strict=True):
            assert known[ids.tobytes()] == ("test" if name == "test" else "train", label)
    again = read_texts(tmp_path, 0.2)
    assert np.array_equal(again["validation"].labels, splits["validation"].labels)


def test_reviews_with_another_column_or_label_are_refused(tmp_path):
    as_jsonl(tmp_path)
    (tmp_path / "train.jsonl").write_text('{"review": "a", "label": 1}\n')
    with pytest.raises(ValueError, match="got the columns review, label, expected text and label"):
        read_texts(tmp_path, 0.1)
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": 7}\n')
    with pytest.raises(ValueError, match="got the label 7, expected 0"):
        read_texts(tmp_path, 0.1)


def test_missing_test_reviews_are_named(tmp_path):
    as_jsonl(tmp_path)
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(ValueError, match="the test reviews are missing"):
        read_texts(tmp_path, 0.1)


def test_pairs_are_read_without_quoting_up_to_10000_bytes(tmp_path):
    for name in FILES.values():
        long = "x" * 10_050
        (tmp_path / name).write_text(f'1.0\ta\tb\tsay "hi\tbye\n0.0\tc\td\t{long}\té\n')
    split = read_retrieval(tmp_path)["validation"]
    assert split.labels.tolist() == [1, 0]
    assert split.rows[0][0].tolist() == byte_ids(b'say "hi').tolist()
    assert [len(tower) for tower in split.rows[1]] == [10_000, 2]


@pytest.mark.parametrize("line", ["1\ta\tb\ttext", "2.0\ta\tb\tx\ty", "label\tid\tid\tx\ty"])
def test_a_line_that_is_no_pair_is_named(tmp_path, line):
    for name in FILES.values():
        (tmp_path / name).write_text(f"0\ta\tb\tx\ty\n{line}\n")
    with pytest.raises(ValueError, match=r"new_aan_pairs\.train\.tsv, line 2: got"):
        read_retrieval(tmp_path)


def colours(count):
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)


def cifar_batches(folder):
    folder = folder / "cifar-10-batches-py"
    folder.mkdir()
    planes = colours(10).transpose(0, 3, 1, 2).reshape(10, -1)
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        content = {b"data": planes, b"labels": list(range(10)), b"batch_label": b"x"}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def cifar_parquet(folder):
    for split, count in (("train", 20), ("test", 10)):
        images = []
        for pixels in np.concatenate([colours(10), colours(10)])[:count]:
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, format="PNG")
            images.append({"bytes": buffer.getvalue(), "path": "x"})
        table = pa.table({"img": images, "label": [n % 10 for n in range(count)]})
        parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")


def cifar_npz(folder):
    for split, count in (("train", 20), ("test", 10)):
        images = grey(np.concatenate([colours(10), colours(10)])[:count])
        labels = np.arange(count) % 10
        np.savez(folder / f"cifar10_gray_{split}.npz", images=images, labels=labels)


def test_all_layouts_of_cifar_give_the_same_pixels(tmp_path):
    found = []
    for write in (cifar_batches, cifar_parquet, cifar_npz):
        folder = tmp_path / write.__name__
        folder.mkdir()
        write(folder)
        splits = read_images(folder)
        assert {n: len(s) for n, s in splits.items()} == {"train": 18, "validation": 2, "test": 10}
        found.append([row[0].tobytes() for split in splits.values() for row in split.rows])
    assert found[0] == found[1] == found[2]
    assert found[0][-1] == grey(colours(10))[9].tobytes()


def test_grey_is_tensorflows_by_truncation():
    # .2989 · 10/255 + .5870 · 200/255 + .1140 · 30/255, times 255.5, cut.
    assert grey(np.array([[[10, 200, 30]]], dtype=np.uint8)).tolist() == [[124]]
    # Black stays 0 and is a symbol like any other.
    assert grey(np.zeros((1, 1, 3), dtype=np.uint8)).tolist() == [[0]]


def test_a_batch_that_would_run_code_is_refused(tmp_path):
    cifar_batches(tmp_path)

    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ValueError, match="not the released file"):
        read_images(tmp_path)
    assert not (tmp_path / "harm").exists()


def test_images_of_another_kind_are_refused(tmp_path):
    cifar_npz(tmp_path)
    np.savez(
        tmp_path / "cifar10_gray_train.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[0, 1]
    )
    with pytest.raises(ValueError, match=r"shape \(8, 8\)"):
        read_images(tmp_path)


@needs("lra/image")
def test_real_images_are_read():
    splits = read_images(real("lra/image"))
    assert [len(split) for split in splits.values()] == [2700, 300, 1000]


@needs("imdb")
def test_four_per_cent_of_real_test_reviews_are_longer_than_4000_bytes():
    test = read_texts(real("imdb"), 0.1)["test"]
    assert np.mean([len(row[0]) > 4000 for row in test.rows]) == pytest.approx(0.04, abs=0.01)


@needs("lra/retrieval")
def test_real_pairs_are_read():
    splits = read_retrieval(real("lra/retrieval"))
    assert [len(split) for split in splits.values()] == [300, 60, 60]
    assert all(split.labels.mean() == 0.5 for split in splits.values())
