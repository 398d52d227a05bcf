"""The cache of `datasets` is read as it stands: what is damaged in it is named, with a way out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

# Where `datasets` reads what it has cached: function, and its variable with the place.
_READERS = {
    "_memory_mapped_arrow_table_from_file": "filename",
    "_in_memory_arrow_table_from_file": "filename",
    "from_directory": "dataset_info_dir",
}


@contextmanager
def damaged_cache_is_named() -> Iterator[None]:
    """Say of an error in reading the cache that it is one.

    Raises:
        ValueError: a file of the cache is missing, cut off or unreadable; the message names the
            folder that is to be deleted.
    """
    try:
        yield
    except Exception as error:
        place = _cached(error)
        if place is None:
            raise
        raise ValueError(
            f"the cache of `datasets` is damaged in {place} ({' '.join(str(error).split())}); "
            "delete that folder, and give the same command again, which makes it anew"
        ) from error


def _cached(error: BaseException) -> Path | None:
    """The folder of the cache whose reading has failed; None where it was something else."""
    following: BaseException | None = error
    while following is not None:
        place = _place(following.__traceback__)
        if place is not None:
            return place
        following = following.__cause__
    return None


def _place(traceback: TracebackType | None) -> Path | None:
    while traceback is not None:
        frame = traceback.tb_frame
        variable = _READERS.get(frame.f_code.co_name)
        if variable is not None and frame.f_globals["__name__"].startswith("datasets."):
            place = Path(str(frame.f_locals[variable]))
            return place.parent if variable == "filename" else place
        traceback = traceback.tb_next
    return None
