"""Python's garbage collector, kept out of what is measured."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Nothing is collected inside but by `gc.collect()`, which looks at new objects only.

    A collection would take time in one round and not in another, and free in one call what an
    earlier one has left behind. All objects that are there, those of the libraries, are set aside:
    looking through them takes longer than many a call.
    """
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
