"""What a program prints: no character of it and no reader that has gone can end the program.

Training goes on where its output is piped to `head`, or where the terminal is closed: an end in the
middle of a step would cost the steps since the last checkpoint, and all processes of the run. Only
the printing stops, and standard error says so, if somebody reads that.
"""

import contextlib
import errno
import io
import os
import stat
import sys
from typing import Any

# A pipe that nobody reads, and a terminal that is no longer there.
_GONE = (errno.EPIPE, errno.EIO)


def secure_streams() -> None:
    """Prepare standard output and standard error for whatever is printed, whoever reads it.

    A character that the encoding of a terminal lacks is written out, as `\\u2502`, and is no error.
    From the first write on that nobody can read any more, a stream is the null device, for native
    code and for processes that are started later, too.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, lasting(stream))
        else:  # somebody has put it there, and wants to find in it what is printed
            stream.reconfigure(errors="backslashreplace")


def lasting(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream, which outlives its reader and takes every character.

    Args:
        stream: of a file that the operating system knows by a number.
    """
    stream.flush()
    raw = _Lasting(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        # `python -u` has no buffer.
        raw if stream.write_through else io.BufferedWriter(raw),  # pyright: ignore
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Lasting(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _GONE or stat.S_ISREG(os.fstat(self.fileno()).st_mode):
                raise  # of a file EIO says that the disk fails
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self.fileno())
        with contextlib.suppress(OSError):
            os.write(2, b"nobody reads the output any more; the program goes on without it\n")
        return len(data)
