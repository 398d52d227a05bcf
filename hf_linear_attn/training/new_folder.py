"""A folder of results is there as a whole or not at all."""

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn


def check_new_folder(folder: Path, argument: str = "output") -> None:
    """Refuse a place where something is.

    Args:
        folder: that is to be made.
        argument: what the program calls it.

    Raises:
        ValueError: it is a file, or a folder that holds something.
    """
    if folder.name in ("", ".."):
        raise ValueError(f"{argument} {folder} has no name of its own: give that of a new folder")
    plain = folder.is_dir() and not folder.is_symlink()
    if plain and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise ValueError(
            f"{argument} {folder} exists and is not an empty folder; nothing is overwritten: "
            "choose another place, or remove it"
        )


@contextmanager
def new_folder(folder: Path, argument: str = "output") -> Iterator[Path]:
    """A temporary folder beside the wanted one, which takes its name when the block is done.

    Enter it before the work begins: what would keep the folder from being made shows then. After an
    error, and at SIGTERM, nothing is left but parents that were made for it.

    Args:
        folder, argument: see `check_new_folder`.

    Raises:
        ValueError: something is there already, before or after the block, or it cannot be made.
    """
    check_new_folder(folder, argument)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        # As a folder made by name; `mkdtemp` makes it for its owner alone.
        temporary.chmod(0o777 & ~_umask())
    except OSError as error:
        raise ValueError(f"{argument} {folder} cannot be made: {error.strerror}") from error
    try:
        with _sigterm_as_exit():
            yield temporary
        check_new_folder(folder, argument)
        if folder.is_dir():
            folder.rmdir()
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM unwind the program, so that what it has begun is cleared away."""

    def leave(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
