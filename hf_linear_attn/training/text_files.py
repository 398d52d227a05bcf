"""Text files: found, checked before they are used, and read as documents."""

import codecs
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hf_linear_attn.training.casting import did_you_mean

PIECE = 1_000  # lines of a text that is read as it stands
DATA_FOLDER_VARIABLE = "HF_LINEAR_ATTN_DATA"
BUILDERS = {
    ".txt": "text",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
}


def find_file(name: str) -> Path:
    """Find a data file and check that it is one.

    Args:
        name: absolute, or relative to the current folder, or, where that has no such file, to the
            folder in the environment variable HF_LINEAR_ATTN_DATA.

    Raises:
        ValueError: missing, a folder, a pipe, of a kind that is not read, empty, or binary where
            text is expected.
    """
    if not name.strip():
        raise ValueError("got an empty name for a file; leave it out, or give its name")
    path = Path(name)
    base = os.environ.get(DATA_FOLDER_VARIABLE)
    if not path.exists() and base:
        path = Path(base) / name
    if not path.exists():
        if path.is_symlink():
            raise ValueError(f"file {name!r} is a link that leads nowhere; give the file itself")
        raise ValueError(f"file {name!r} does not exist{_where_it_was_sought(name, base)}")
    if path.is_dir():
        raise ValueError(f"{name!r} is a folder; give its files, or the folder as --dataset_name")
    if not path.is_file():
        raise ValueError(f"{name!r} is a pipe or a device; write the text to a file and give that")
    if path.suffix.lower() not in BUILDERS:
        raise ValueError(
            f"file {name!r}: got the suffix {path.suffix!r}, expected one of {', '.join(BUILDERS)}"
        )
    if path.suffix.lower() != ".parquet":
        _check_text(path)
    return path


def read_documents(
    files: list[tuple[str, int, int]], by_line: bool, as_it_stands: bool = False
) -> Iterator[dict[str, str]]:
    """Read .txt files as documents.

    Args:
        files: name, size in bytes and time of last change in nanoseconds; only the name is read,
            the rest makes the cache of `datasets` follow a changed file.
        by_line: each non-blank line is a document; else each run of non-blank lines is.
        as_it_stands: blank lines and line ends are text, which comes in pieces of many lines.

    Yields:
        `{"text": document}`, without blank lines and without the last line's end; or
        `{"text": piece}`, which in a row are the files.
    """
    for name, _, _ in files:
        if as_it_stands:
            with open(name, encoding="utf-8-sig") as file:
                while piece := "".join(islice(file, PIECE)):
                    yield {"text": piece}
            continue
        lines: list[str] = []
        with open(name, encoding="utf-8-sig") as file:
            for line in file:
                if line.strip() and not by_line:
                    lines.append(line)
                    continue
                lines = [line] if line.strip() else lines
                if lines:
                    yield {"text": "".join(lines).rstrip("\n")}
                lines = []
        if lines:
            yield {"text": "".join(lines).rstrip("\n")}


def identity(path: Path) -> tuple[str, int, int]:
    """What `read_documents` takes for a file."""
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns


def _where_it_was_sought(name: str, base: str | None) -> str:
    folder = Path(name).parent
    neighbours = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    hint = did_you_mean(Path(name).name, neighbours)
    if Path(name).is_absolute():
        return hint
    also = f", nor under {DATA_FOLDER_VARIABLE}={base}" if base else ""
    return f" in {os.getcwd()!r}{also}{hint}"


def _check_text(path: Path) -> None:
    """Refuse what is not text: a NUL byte, or bytes that are not UTF-8; and text without a word."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    read, blank = 0, True
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            nul = chunk.find(b"\0")
            if nul >= 0:
                raise ValueError(f"file {str(path)!r} is binary: NUL at byte {read + nul}")
            try:
                blank = not decoder.decode(chunk).strip() and blank
            except UnicodeDecodeError as error:
                raise ValueError(_not_utf8(path, read, error)) from error
            read += len(chunk)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueError(_not_utf8(path, read - len(error.object), error)) from error
    if blank:
        raise ValueError(f"file {str(path)!r} is empty" + (": only white space" if read else ""))


def _not_utf8(path: Path, before: int, error: UnicodeDecodeError) -> str:
    return (
        f"file {str(path)!r} is not UTF-8 text (near byte {before + error.start}: {error.reason}); "
        "convert it to UTF-8"
    )
