"""A file is there as a whole or not at all, also when the process is killed while it writes.

What is being written lies beside its place, under a name that begins with a dot and ends with the
number of the process and a word of ours: nobody else's files are called so.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SUFFIX = "hf_linear_attn"
_BEING_WRITTEN = re.compile(rf"\..+\.\d+\.{_SUFFIX}")


def write_atomically(file: Path, text: str) -> None:
    """Write UTF-8 text; a file that holds it already is not touched.

    Args:
        file: in an existing folder.
        text: the new content.
    """
    content = text.encode("utf-8")
    if file.is_file() and file.read_bytes() == content:
        return
    with replaced(file) as temporary, open(temporary, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """A path to write to, which takes a file's place when the block is done.

    Args:
        file: in an existing folder; after an error it is what it was.
    """
    temporary = _beside(file)
    try:
        yield temporary
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replaced_files(folder: Path, last: str) -> Iterator[Path]:
    """A folder to write to, whose files take their places in another one when the block is done.

    Args:
        folder: made where there is none; after an error its files are what they were.
        last: begin of the names of the files that are to be replaced last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = _beside(folder / "files")
    try:
        temporary.mkdir()
        yield temporary
        files = [path for path in temporary.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: (path.name.startswith(last), path)):
            target = folder / path.relative_to(temporary)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_half_written(folder: Path) -> None:
    """Remove what killed processes were writing into a folder; no other may be writing there."""
    for path in folder.iterdir():
        if _BEING_WRITTEN.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{_SUFFIX}")
