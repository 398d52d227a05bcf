"""Fingerprints of tokenised examples: a run that goes on must find the data it has begun with."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from hf_linear_attn.training.atomic_files import write_atomically

_ROWS_AT_ONCE = 1_000
# One of the tokens, and one of the labels where the rows have any.
_DIGESTS = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{32})?")


def examples_fingerprint(dataset: Any, vocab_size: int) -> str:
    """A BLAKE2b digest of the rows' tokens, in order, in hexadecimal digits.

    Args:
        dataset: a `datasets.Dataset` or `IterableDataset` with a column `input_ids`, read once
            from beginning to end.
        vocab_size: one more than the tokenizer's largest id; ids may have gaps.

    Raises:
        ValueError: a row has a token that the tokenizer does not have: it came from a cache that
            is damaged.
    """
    digest = hashlib.blake2b(digest_size=16)
    for table in dataset.select_columns("input_ids").with_format("arrow").iter(_ROWS_AT_ONCE):
        rows = table["input_ids"].combine_chunks()
        _check_tokens(rows.flatten().to_numpy(zero_copy_only=False), vocab_size, dataset)
        for part in (rows.value_lengths(), rows.flatten()):
            digest.update(part.to_numpy(zero_copy_only=False).astype("<i8").tobytes())
    return digest.hexdigest()


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


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGESTS.fullmatch(value) is not None


def _check_tokens(ids: np.ndarray, vocab_size: int, dataset: Any) -> None:
    if not len(ids) or (ids.min() >= 0 and ids.max() < vocab_size):
        return
    strange = ids[(ids < 0) | (ids >= vocab_size)][0]
    files = {str(Path(file["filename"]).parent) for file in getattr(dataset, "cache_files", ())}
    raise ValueError(
        f"the examples hold the token {strange}, and the tokenizer's ids end at {vocab_size - 1}: "
        f"the cache of `datasets` is damaged{' in ' if files else ''}{', '.join(sorted(files))}; "
        "delete that folder, and give the same command again, which makes it anew"
    )
