"""A program writes its tables and plots anew at every start, and never over those of a person."""

import os
from collections.abc import Sequence
from pathlib import Path


def check_may_write(folder: Path, names: Sequence[str], signs: Sequence[str]) -> None:
    """Refuse a folder with files of somebody else under the names that a program writes.

    Args:
        folder: of the output; it need not exist.
        names: of the files in it that the program writes at its end.
        signs: patterns of what any earlier start of it has left there before it wrote them.

    Raises:
        ValueError: one of the files is there, and nothing that an earlier start has left.
    """
    there = [name for name in names if os.path.lexists(folder / name)]
    if not there or any(any(folder.glob(pattern)) for pattern in signs):
        return
    raise ValueError(
        f"output_dir {folder} holds {', '.join(there)}, and no run of this program; it writes "
        "files of these names, so give yours other names or another place, or choose another "
        "output_dir (nothing was changed)"
    )
