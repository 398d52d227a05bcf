"""A folder of results is there as a whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_new_folder(folder: Path, argument: str = "output") -> None:
    """Refuse a place where something is.

    Args:
        folder: that is to be made.
        argument: what the program calls it.

    Raises:
        ValueError: it is a file, or a folder that holds something.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise ValueError(
            f"{argument} {folder} exists and is not an empty folder; nothing is overwritten: "
            "choose another place, or remove it"
        )


@contextmanager
def new_folder(folder: Path, argument: str = "output") -> Iterator[Path]:
    """A temporary folder beside the wanted one, which takes its name when the block is done.

    After an error nothing is left.

    Args:
        folder, argument: see `check_new_folder`.

    Raises:
        ValueError: something is there already, before or after the block.
    """
    check_new_folder(folder, argument)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir()
    try:
        yield temporary
        check_new_folder(folder, argument)
        if folder.is_dir():
            folder.rmdir()
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
