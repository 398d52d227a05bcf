"""The cache of `datasets` is read as it stands: what is damaged in it is named, with a way out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

# Where `datasets` reads what it has cached: function, and its variable with the place.
_READERS = {
    "_memory_mapped_arrow_table_from_file": "filename",
    "_in_memory_arrow_table_from_file": "filename",
    "from_directory": "dataset_info_dir",
    "from_file": "filename",
    "_as_dataset": "cache_dir",
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
        raise _damage([str(place)], str(error)) from error


def check_layout(dataset: Any) -> None:
    """Look at what is read by its position, before it is: out of a table, it ends the process.

    Args:
        dataset: of `datasets`, with a column `input_ids`; of one that is not on the disk there is
            nothing to look at.

    Raises:
        ValueError: a table is damaged.
    """
    import pyarrow as pa

    if not getattr(dataset, "cache_files", ()):
        return
    table = dataset.data.table
    try:
        table.validate(full=True)
        names = [name for field in table.schema for name in _names(field)]
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise damage_of(dataset, str(error)) from error
    if "input_ids" not in names:
        raise damage_of(dataset, "there is no column input_ids")


def _names(field: Any) -> Iterator[str]:
    """Of a column and of what its lists hold; one that is no text is an error."""
    yield field.name
    if hasattr(field.type, "value_field"):
        yield from _names(field.type.value_field)


def damage_of(dataset: Any, what: str) -> ValueError:
    """The error for a data set whose rows cannot have been made so.

    Args:
        dataset: its folders are named.
        what: is wrong with it.
    """
    files = (file["filename"] for file in getattr(dataset, "cache_files", ()))
    return _damage(sorted({str(Path(file).parent) for file in files}), what)


def _damage(places: list[str], what: str) -> ValueError:
    where = f" in {', '.join(places)}" if places else ""
    return ValueError(
        f"the cache of `datasets` is damaged{where} ({' '.join(what.split())}); delete that "
        "folder, and give the same command again, which makes it anew"
    )


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
            return place if variable.endswith("dir") else place.parent
        traceback = traceback.tb_next
    return None
