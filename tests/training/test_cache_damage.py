"""Damage in the cache of `datasets` is told as such, with the folder that is to be deleted."""

from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, Features, List, Value

from hf_linear_attn.training.cache_damage import damaged_cache_is_named
from hf_linear_attn.training.fingerprint import examples_fingerprint
from hf_linear_attn.training.tokenizing import count_tokens


def numbers():
    yield from ({"number": n} for n in range(100))


def cached(folder: Path) -> Dataset:
    with damaged_cache_is_named():
        return Dataset.from_generator(numbers, cache_dir=str(folder), fingerprint="fixed")


@pytest.mark.parametrize("damage", ["cut", "emptied", "deleted"])
@pytest.mark.parametrize("kind", ["*.arrow", "dataset_info.json"])
def test_a_damaged_file_is_told_and_made_anew_as_told(tmp_path, kind, damage):
    cached(tmp_path)
    [file] = tmp_path.rglob(kind)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    if damage == "deleted":
        file.unlink()
    if (kind, damage) != ("dataset_info.json", "deleted"):  # without it, it is made anew
        message = f"cache of `datasets` is damaged in {file.parent} .*; delete that folder"
        with pytest.raises(ValueError, match=message):
            cached(tmp_path)
        for path in file.parent.iterdir():
            path.unlink()
        file.parent.rmdir()
    assert len(cached(tmp_path)) == 100


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("dataset_info.json", b'"number"', b'"numbar"'),
        ("dataset_info.json", b'"splits"', b'"sqlits"'),
        ("*.arrow", b'"info"', b"'info\""),
        ("*.arrow", b'"_type"', b'"_tipe"'),
    ],
)
def test_a_changed_name_is_told(tmp_path, kind, old, new):
    cached(tmp_path)
    [file] = tmp_path.rglob(kind)
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"damaged in {file.parent} .*; delete that folder"):
        cached(tmp_path)


def rows_on_disk(folder: Path, change) -> Dataset:
    """Rows of tokens and masks, whose file was changed behind them."""
    rows = Dataset.from_dict(
        {
            "input_ids": [[7, 8, 9], [5]] * 50,
            "special_tokens_mask": [[1, 0, 0], [1]] * 50,
            "labels": [0.5, 1.5] * 50,
        },
        Features(
            input_ids=List(Value("int32")),
            special_tokens_mask=List(Value("int8")),
            labels=Value("float32"),
        ),
    )
    rows.map(cache_file_name=str(folder / "rows.arrow"), load_from_cache_file=False)
    content = (folder / "rows.arrow").read_bytes()
    (folder / "rows.arrow").write_bytes(change(content))
    return Dataset.from_file(str(folder / "rows.arrow"))


def exchange(old: list[int], new: list[int], kind: str):
    """What a list of numbers is replaced by, once."""
    before, after = (np.asarray(x, kind).tobytes() for x in (old, new))

    def change(content: bytes) -> bytes:
        assert before in content
        return content.replace(before, after, 1)

    return change


@pytest.mark.parametrize("read", [lambda rows: examples_fingerprint(rows, 10), count_tokens])
def test_a_row_that_ends_outside_of_the_table_is_told(tmp_path, read):
    rows = rows_on_disk(tmp_path, exchange([3, 4, 7], [3, 2**30, 7], "<i4"))
    with pytest.raises(ValueError, match=f"damaged in {tmp_path} .*; delete that folder"):
        read(rows)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\x09\0\0\0input_ids", b"\x09\0\0\0input_idz"),
        (b"\x04\0\0\0item", b"\x04\0\0\0ite\xff"),
    ],
)
@pytest.mark.parametrize("read", [lambda rows: examples_fingerprint(rows, 10), count_tokens])
def test_a_changed_name_in_the_table_is_told(tmp_path, read, old, new):
    """As in the schema, where names stand behind their length; features are kept apart from it."""

    def change(content: bytes) -> bytes:
        assert old in content
        return content.replace(old, new, 1)

    def read_anew():
        with damaged_cache_is_named():
            read(rows_on_disk(tmp_path, change))

    with pytest.raises(ValueError, match=f"damaged in {tmp_path} .*; delete that folder"):
        read_anew()


@pytest.mark.parametrize(
    "change",
    [
        exchange([7, 8, 9, 5], [7, 8, 8, 5], "<i4"),
        exchange([1, 0, 0, 1, 1], [1, 1, 0, 1, 1], "<i1"),
        exchange([0, 3, 4, 7], [0, 2, 4, 7], "<i4"),
        exchange([0.5, 1.5], [0.5, 1.75], "<f4"),
    ],
    ids=["token", "mask", "end of a row", "label"],
)
def test_the_fingerprint_sees_any_number_that_is_another(tmp_path, change):
    (tmp_path / "changed").mkdir()
    sound = examples_fingerprint(rows_on_disk(tmp_path, bytes), 10)
    assert examples_fingerprint(rows_on_disk(tmp_path / "changed", change), 10) != sound


def test_other_errors_pass(tmp_path):
    def read():
        with damaged_cache_is_named():
            (tmp_path / "none").read_text()

    with pytest.raises(FileNotFoundError):
        read()


@pytest.mark.parametrize("strange", [400, -3])
def test_a_token_that_the_tokenizer_does_not_have_is_damage(strange):
    rows = Dataset.from_dict({"input_ids": [[0, 399], [], [strange, 7]]})
    with pytest.raises(ValueError, match=f"cache of `datasets` is damaged .*the token {strange}"):
        examples_fingerprint(rows, 400)
