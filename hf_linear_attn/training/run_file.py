"""`run.yaml`: all arguments of a run, in its output folder.

It can be used as a configuration file, so a person may have written it, or put work into it. A run
marks what it writes with a checksum: nothing else is ever replaced.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.yaml_files import read_yaml_mapping, write_yaml

RUN_FILE = "run.yaml"
_HEADER = "# All arguments of this run; use it again with --config.\n"
_MARK = "# Written by the run, which may replace it as long as this checksum holds: "


def write_run_file(folder: Path, arguments: dict[str, Any]) -> None:
    """Create the output folder and store the run's arguments in it.

    Args:
        folder: of the run; a file in it that holds these arguments stays as it is.
        arguments: plain values by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not holds(folder / RUN_FILE, arguments):
        text = write_yaml(arguments)
        write_atomically(folder / RUN_FILE, f"{_HEADER}{_MARK}{_checksum(text.encode())}\n{text}")


def may_be_replaced(file: Path, arguments: dict[str, Any]) -> bool:
    """Whether nothing of a person is lost when a run writes these arguments there.

    Args:
        file: `run.yaml`; where there is none, nothing is lost.
        arguments: of the run.
    """
    return not os.path.lexists(file) or is_of_a_run(file) or holds(file, arguments)


def is_of_a_run(file: Path) -> bool:
    """Whether a file is, byte for byte, what a run has written."""
    try:
        content = file.read_bytes()
    except OSError:
        return False
    head, mark, rest = content.partition(_MARK.encode())
    checksum, _, text = rest.partition(b"\n")
    return bool(mark) and head == _HEADER.encode() and checksum == _checksum(text).encode()


def holds(file: Path, arguments: dict[str, Any]) -> bool:
    """Whether a file holds these arguments and no others, however it is written."""
    try:
        return read_yaml_mapping(file) == arguments
    except ValueError:
        return False


def _checksum(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=16).hexdigest()
