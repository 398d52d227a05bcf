"""Files of Long Range Arena: cut off, of another kind, or with more in them than data."""

import json
import pickle
from pathlib import Path

from tests.hostile.case import Case
from tests.hostile.given import folder, write, write_json

_HEADER = "Source\tTarget\r\n"
_GOOD = _HEADER + "( ( ( [MAX 2 ) 9 ) ] )\t9\r\n" * 3


def _listops(name: str, given: str, train: str | bytes, says: str) -> Case:
    files = {"train": train, "val": _GOOD, "test": _GOOD}
    made = tuple(write(f"d/basic_{split}.tsv", content) for split, content in files.items())
    return Case(f"lra-{name}", "lra", given, says, ("--data_dir", "d"), made)


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        import os

        return os.mkdir, ("run",)


def _cifar(name: str, given: str, content: bytes, says: str) -> Case:
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    made = tuple(write(f"d/cifar-10-batches-py/{n}", content) for n in names)
    argv = ("--task", "image", "--max_length", "1024", "--data_dir", "d")
    return Case(f"lra-{name}", "lra", given, says, argv, made)


def _text(name: str, given: str, content: str | bytes, says: str) -> Case:
    made = tuple(write(f"d/{split}.jsonl", content) for split in ("train", "test"))
    argv = ("--task", "text", "--max_length", "64", "--data_dir", "d")
    return Case(f"lra-{name}", "lra", given, says, argv, made)


def _array(at: Path, _: Path) -> None:
    import numpy as np

    (at / "d").mkdir()
    for split in ("train", "test"):
        images = np.array([_Evil()], dtype=object)
        np.savez(at / f"d/gray_{split}.npz", images=images, labels=np.zeros(1))


_PATHFINDER = ("--task", "pathfinder", "--max_length", "1024", "--data_dir", "d")

CASES = [
    _listops("empty", "an empty file of expressions", "", "d/basic_train.tsv: got the first line '', expected the header of a ListOps file, 'Source\\tTarget'"),
    _listops("header", "a header and no expression", _HEADER, "d/basic_train.tsv: no expression in this file"),
    _listops("other-header", "another header", "a\tb\r\n1\t2\r\n", "d/basic_train.tsv: got the first line 'a\\tb', expected the header of a ListOps file, 'Source\\tTarget'"),
    _listops("symbol", "an expression with an unknown symbol", _HEADER + "[AVG 1 2 ]\t1\r\n", "basic_train.tsv, line 2: no ListOps expression: got '[AVG', expected the symbols 0 1 2 3 4 5 6 7 8 9 [MIN [MAX [MED [SM ] (and parentheses), split by blanks"),
    _listops("value", "an expression without its value", _HEADER + "( 1 )\r\n", "basic_train.tsv, line 2: expected an expression, a TAB and its value"),
    _listops("value-word", "a value that is a word", _HEADER + "( 1 )\tone\r\n", "basic_train.tsv, line 2: expected an expression, a TAB and its value"),
    _listops("value-large", "a value of 10", _HEADER + "( 1 )\t10\r\n", "basic_train.tsv, line 2: the label is 10, the value of the expression is 1"),
    _listops("binary", "a binary file of expressions", b"Source\tTarget\r\n\x00\xff\t1\r\n", "d/basic_train.tsv cannot be read as a ListOps file: UnicodeDecodeError: …"),
    _listops("long", "an expression longer than the task's", _HEADER + "( 1 " * 2000 + "\t1\r\n", "basic_train.tsv, line 2: no ListOps expression: it must be one digit or one closed list"),
    _cifar("pickle", "a pickle that would make a folder", pickle.dumps(_Evil()), "d/cifar-10-batches-py/data_batch_1 cannot be read as a batch of CIFAR-10: ValueError: a CIFAR-10 batch holds posix.mkdir: not the released file; it is damaged or another…"),
    _cifar("pickle-cut", "a pickle that is cut off", pickle.dumps({b"data": b"x" * 100})[:40], "d/cifar-10-batches-py/data_batch_1 cannot be read as a batch of CIFAR-10: UnpicklingError: …"),
    _cifar("pickle-list", "a pickle of something else", pickle.dumps([1, 2, 3]), "d/cifar-10-batches-py/data_batch_1 cannot be read as a batch of CIFAR-10: TypeError: …"),
    _cifar("pickle-empty", "an empty pickle", b"", "d/cifar-10-batches-py/data_batch_1 cannot be read as a batch of CIFAR-10: EOFError: …"),
    Case("lra-npz", "lra", "an array of objects that would make a folder", "d/gray_train.npz cannot be read as an npz file of images: ValueError: …", ("--task", "image", "--max_length", "1024", "--data_dir", "d"), (_array,)),
    _text("text-line", "a line that is no JSON", "{bad\n", "d/train.jsonl, line 1: got '{bad', expected a JSON object with text and label; mend the line, or put the whole file in its place"),
    _text("text-columns", "rows without a label", json.dumps({"text": "one"}) + "\n", "d/train.jsonl: got the columns text, expected text and label; label is not there"),
    _text("text-label", "a label of 7", json.dumps({"text": "one", "label": 7}) + "\n", "d/train.jsonl: got the label 7, expected 0 (negative) or 1 (positive)"),
    _text("text-number", "a text that is a number", json.dumps({"text": 1, "label": 1}) + "\n", "d/train.jsonl: got the text 1, expected a string"),
    _text("text-empty", "an empty file of reviews", "", "d/train.jsonl cannot be read as a json file of reviews (it or those beside it): StopIteration: …"),
    _text("text-utf16", "reviews in UTF-16", json.dumps({"text": "one", "label": 1}).encode("utf-16"), "d/train.jsonl cannot be read as lines of JSON: UnicodeDecodeError: …"),
    Case("lra-missing", "lra", "a folder that is not there", "data_dir 'none' is no folder; give the folder of the task's files", ("--data_dir", "none")),
    Case("lra-file", "lra", "a file instead of the folder", "data_dir 'text.txt' is no folder; give the folder of the task's files", ("--data_dir", "text.txt")),
    Case("lra-nul", "lra", "a folder's name with a NUL", "nul.yaml: data_dir: got 'a\\x00b', expected text without a NUL", ("--config", "config.yaml", "nul.yaml"), (write_json("nul.yaml", {"data_dir": "a\0b"}),)),
    Case("lra-no-files", "lra", "an empty folder", "data_dir 'd' has no files of the task listops (basic_train.tsv, basic_val.tsv and basic_test.tsv), neither in itself nor in a folder listops or listops-1000: it has none of them", ("--data_dir", "d"), (folder("d"),)),
    Case("lra-undrawn", "lra", "a task that cannot be drawn", "task text needs data_dir, a folder with aclImdb's train and test folders, or train.jsonl and test.jsonl: its examples cannot be drawn", ("--task", "text", "--max_length", "64")),
    Case("lra-generated-file", "lra", "a file where drawn examples are to be kept", 'generated_dir text.txt is a file; choose a folder', ("--generated_dir", "text.txt")),
    Case("lra-generated-nul", "lra", "a NUL in the name where drawn examples are to be kept", "nul.yaml: generated_dir: got 'a\\x00b', expected text without a NUL", ("--config", "config.yaml", "nul.yaml"), (write_json("nul.yaml", {"generated_dir": "a\0b"}),)),
    Case("lra-retrieval", "lra", "files of retrieval without columns", "d/new_aan_pairs.train.tsv, line 1: got 1 fields and the label 'nothing', expected 5 fields, the first of which is the label, 0 or 1", ("--task", "retrieval", "--max_length", "64", "--data_dir", "d"), tuple(write(f"d/new_aan_pairs.{s}.tsv", "nothing\n") for s in ("train", "eval", "test"))),
    Case("lra-pathfinder", "lra", "metadata of pathfinder that are no table", "d/curv_baseline/metadata/0.npy, line 1: got 'nothing', expected 11 fields, the fourth of which is the label, 0 or 1", (*_PATHFINDER,), (write("d/curv_baseline/metadata/0.npy", "nothing"), folder("d/curv_baseline/imgs/0"))),
    Case("lra-pathfinder-above", "lra", "metadata of pathfinder that name an image above the folder", "d/curv_baseline/metadata/0.npy, line 1: the image ../../text.txt lies outside of the folder", (*_PATHFINDER,), (write("d/curv_baseline/metadata/0.npy", "../.. text.txt 0 1 0 0 0 0 0 0 0"), folder("d/curv_baseline/imgs/0"))),
]  # fmt: skip
