"""What a program prints, and that no character of it can end the program."""

import io
import sys


def secure_streams() -> None:
    """Prepare standard output and standard error for whatever is printed.

    A character that the encoding of a terminal lacks is written out, as `\\u2502`, and is no error.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
