"""Damage in the cache of `datasets` is told as such, with the folder that is to be deleted."""

from pathlib import Path

import pytest
from datasets import Dataset

from hf_linear_attn.training.cache_damage import damaged_cache_is_named
from hf_linear_attn.training.fingerprint import examples_fingerprint


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


def test_other_errors_pass(tmp_path):
    def read():
        with damaged_cache_is_named():
            (tmp_path / "none").read_text()

    with pytest.raises(FileNotFoundError):
        read()


@pytest.mark.parametrize("strange", [400, -3])
def test_a_token_that_the_tokenizer_does_not_have_is_damage(strange):
    rows = Dataset.from_dict({"input_ids": [[0, 399], [], [strange, 7]]})
    with pytest.raises(ValueError, match=f"hold the token {strange}.* cache of `datasets` is dam"):
        examples_fingerprint(rows, 400)
