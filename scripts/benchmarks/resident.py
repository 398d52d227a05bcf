"""The memory that this process has now, and what an object keeps of it."""

import gc
import importlib.util
import os
from pathlib import Path
from types import FunctionType, ModuleType

from torch import Tensor

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """Resident size of the process at this moment, or None where nothing tells it.

    Linux tells it; elsewhere the package psutil does, where it is installed. The largest size so
    far (`ru_maxrss`) is of no use: what was there before hides what grows later.
    """
    if _STATM.exists():
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    if importlib.util.find_spec("psutil") is None:
        return None
    import psutil

    return psutil.Process().memory_info().rss


def tensor_bytes(root: object) -> int:
    """Bytes of all tensors that an object leads to, each storage counted once.

    Attributes and containers are followed to any depth; classes, modules and functions, which lead
    to everything there is, are not.
    """
    storages: dict[int, int] = {}
    seen: set[int] = set()
    # Kept, so that no identity is given to another object meanwhile.
    todo, done = [root], []
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType):
            continue
        seen.add(id(thing))
        done.append(thing)
        if isinstance(thing, Tensor):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        else:
            todo += gc.get_referents(thing)
    return sum(storages.values())
