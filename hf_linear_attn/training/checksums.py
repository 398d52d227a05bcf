"""Checksums of a folder's files: damage shows that leaves a file readable."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from hf_linear_attn.training.atomic_files import write_atomically

CHECKSUMS_FILE = "checksums.json"


def file_checksum(file: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_checksums(folder: Path, files: Iterable[Path] | None = None) -> None:
    """Write `checksums.json` into a folder, by relative name.

    Args:
        folder: gets the file.
        files: below the folder, each there; None takes all.
    """
    if files is None:
        below = (path for path in folder.rglob("*") if path.is_file())
        files = (path for path in below if path != folder / CHECKSUMS_FILE)
    sums = {path.relative_to(folder).as_posix(): file_checksum(path) for path in sorted(files)}
    write_atomically(folder / CHECKSUMS_FILE, json.dumps(sums, indent=1) + "\n")
