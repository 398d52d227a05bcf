"""Faults that are neither the user's nor the program's: a full disk, a process that is gone.

They reach a program as many kinds of exception, from Python and from native code.
"""

import errno
import os
import re
from collections.abc import Iterator

# Not EIO: files that cannot be read say it, too.
_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# How code written in Rust names the number of an error.
_NUMBER = re.compile(r"\(os error (\d+)\)")
# torch's writer of files, which forgets the number.
_TORCH_WRITER = re.compile(
    r"PytorchStreamWriter|inline_container.*unexpected pos|basic_ios::clear: iostream error",
    re.DOTALL,
)
# What `datasets` says beforehand.
_NO_ROOM = "Not enough disk space"
# What is said of a connection between processes when one of them ends.
_CLOSED = re.compile(
    r"gloo.*(?:closed by peer|reset by peer|Broken pipe)|remote process exited", re.DOTALL
)


def outer_fault(error: BaseException) -> str | None:
    """One line on such a fault and on what to do; None for any other exception.

    Args:
        error: as it was caught; what caused it is looked at, too.
    """
    for one in causes(error):
        number = _disk_error(one)
        if number is not None:
            file = getattr(one, "filename", None)
            where = "what was being written" if file is None else str(file)
            return (
                f"{os.strerror(number)}: {where} is not complete. What was complete before is "
                "untouched: make room, or choose another place, and give the same command again"
            )
        if isinstance(one, RuntimeError) and _CLOSED.search(str(one)):
            return (
                "another process of this run has ended, so this one cannot go on either; its own "
                "message says why, if it had the time. The same command goes on from the newest "
                "complete checkpoint"
            )
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception, what caused it, and what was being handled when it was raised."""
    following: BaseException | None = error
    seen: set[int] = set()
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _disk_error(error: BaseException) -> int | None:
    text = str(error)
    if isinstance(error, OSError) and error.errno in _OF_A_DISK:
        return error.errno
    if isinstance(error, OSError) and _NO_ROOM in text:
        return errno.ENOSPC
    if isinstance(error, RuntimeError) and _TORCH_WRITER.search(text):
        return errno.ENOSPC
    found = _NUMBER.search(text)
    number = int(found[1]) if found else None
    return number if number in _OF_A_DISK else None
