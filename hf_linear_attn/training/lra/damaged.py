"""A data file that is missing or damaged is one clear mistake, whatever its reader makes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reading(file: Path, kind: str) -> Iterator[None]:
    """Within it nothing is done but reading one file.

    Args:
        file: which.
        kind: what it should be, such as "a PNG image".

    Raises:
        ValueError: it is missing, or its reader has failed; the message names it.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"{file} is missing; put {kind} there") from error
    # A damaged pickle, archive or picture raises nearly anything.
    except Exception as error:
        raise ValueError(
            f"{file} cannot be read as {kind}: {type(error).__name__}: {error}; it is damaged or "
            "another file; put the released one in its place"
        ) from error
