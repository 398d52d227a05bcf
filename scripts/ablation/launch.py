"""Programs that are started one after the other, and end with the one that has started them."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.children import end_children_with_this_process

# Beside a run's folder: the CPU seconds of each of its starts, a line a start.
CPU_SECONDS = ".cpu_seconds"
# What stands there until a start has ended, and for good where it was killed with its starter.
_UNKNOWN = "unknown"
LOCK = ".lock"


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """No second start in a folder: it would train the same runs at once, into the same files.

    Raises:
        ValueError: there is one at work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise ValueError(
            f"output_dir: another start is at work in {folder}; wait for it"
        ) from error


def launch(command: Sequence[str], environment: Mapping[str, str], log: Path, seconds: Path) -> int:
    """Run a program to its end.

    Args:
        command: its words.
        environment: variables that it is given beside this program's own.
        log: file of what it prints.
        seconds: file that is given a line with the CPU seconds of this start.

    Returns:
        The exit code.
    """
    end_children_with_this_process()
    earlier = seconds.read_text(encoding="utf-8", errors="replace") if seconds.is_file() else ""
    write_atomically(seconds, f"{earlier}{_UNKNOWN}\n")
    before = os.times()
    try:
        with open(log, "w", encoding="utf-8") as opened:
            return subprocess.run(
                command,
                stdout=opened,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                # Python does what is registered for forks only where it has something to call.
                preexec_fn=_nothing,
            ).returncode
    finally:
        after = os.times()
        spent = after.children_user + after.children_system
        spent -= before.children_user + before.children_system
        write_atomically(seconds, f"{earlier}{spent:.1f}\n")


def cpu_seconds(file: Path) -> float | None:
    """CPU seconds of all starts of a run; None where those of one are not known.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        lines = file.read_text(encoding="utf-8").split() if file.is_file() else [_UNKNOWN]
        return None if _UNKNOWN in lines else sum(map(float, lines))
    except ValueError as error:
        raise ValueError(
            f"{file} is damaged: expected the CPU seconds of a start in each line; delete it, and "
            "the time of that run counts as not known"
        ) from error


def _nothing() -> None:
    pass
