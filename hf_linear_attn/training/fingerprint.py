"""Fingerprints of tokenised examples: a run that goes on must find the data it has begun with."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.cache_damage import check_layout, damage_of

_ROWS_AT_ONCE = 1_000
# Of all columns; earlier versions knew data by their tokens, or by tokens and labels.
_FORMULA = "2-"
_DIGEST = re.compile(rf"({_FORMULA})?[0-9a-f]{{32}}(-[0-9a-f]{{32}})?")


def examples_fingerprint(dataset: Any, vocab_size: int) -> str:
    """A BLAKE2b digest of the rows' tokens, masks and labels, in order, in hexadecimal digits.

    Before it stands the number of the formula.

    Args:
        dataset: a `datasets.Dataset` or `IterableDataset` with a column `input_ids`, read once
            from beginning to end; columns of numbers, or of lists of numbers.
        vocab_size: one more than the tokenizer's largest id; ids may have gaps.

    Raises:
        ValueError: rows that no tokenizer has made, or a token that this one does not have: they
            came from a cache that is damaged.
    """
    import pyarrow as pa

    digest = hashlib.blake2b(digest_size=16)
    check_layout(dataset)
    for table in dataset.with_format("arrow").iter(_ROWS_AT_ONCE):
        for name in sorted(table.column_names):
            column = table[name].combine_chunks()
            digest.update(name.encode())
            if pa.types.is_list(column.type):
                digest.update(_content(column.value_lengths(), dataset))
                column = column.flatten()
            if name == "input_ids":
                _check_tokens(column.to_numpy(zero_copy_only=False), vocab_size, dataset)
            digest.update(_content(column, dataset))
    return f"{_FORMULA}{digest.hexdigest()}"


def write_fingerprint(file: Path, fingerprint: dict[str, str]) -> None:
    """Write the digests of a run's data; a file that holds them already stays as it is.

    Args:
        file: in an existing folder.
        fingerprint: a digest a split.
    """
    try:
        if read_fingerprint(file) == fingerprint:
            return
    except ValueError:
        pass  # the caller has seen to it that nothing is lost
    write_atomically(file, json.dumps(fingerprint, indent=1) + "\n")


def read_fingerprint(file: Path) -> dict[str, str]:
    """What `write_fingerprint` has written.

    Raises:
        ValueError: missing, unreadable, or something else.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read") from error
    if not isinstance(content, dict) or not content or not all(map(_is_digest, content.values())):
        raise ValueError(f"{file} holds something else than digests of a run's data")
    return content


def check_formula(file: Path, before: dict[str, str], now: dict[str, str]) -> None:
    """Raise ValueError if digests cannot be compared: those of a file are of an earlier version."""
    for name, digest in now.items():
        if digest.startswith(_FORMULA) and not before.get(name, digest).startswith(_FORMULA):
            raise ValueError(
                f"{file} is of an earlier version, which knew data by their tokens alone"
            )


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _content(numbers: Any, dataset: Any) -> bytes:
    """Numbers of Arrow in one form, whatever type they are kept in."""
    import pyarrow as pa

    if numbers.null_count:
        raise damage_of(dataset, "the examples hold a number that is none")
    form = "<f8" if pa.types.is_floating(numbers.type) else "<i8"
    return numbers.to_numpy(zero_copy_only=False).astype(form).tobytes()


def _check_tokens(ids: np.ndarray, vocab_size: int, dataset: Any) -> None:
    strange = ids[(ids < 0) | (ids >= vocab_size)]
    if len(strange):
        raise damage_of(
            dataset,
            f"the examples hold the token {strange[0]}, and the tokenizer's ids end at "
            f"{vocab_size - 1}",
        )
