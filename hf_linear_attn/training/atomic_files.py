"""A file is there as a whole or not at all, also when the process is killed while it writes."""

import os
from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Write UTF-8 text; a file that holds it already is not touched.

    Args:
        file: in an existing folder; the temporary file beside it is named `.<name>.<process>`.
        text: the new content.
    """
    content = text.encode("utf-8")
    if file.is_file() and file.read_bytes() == content:
        return
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with open(temporary, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(temporary, file)
