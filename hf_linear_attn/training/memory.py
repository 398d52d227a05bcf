"""How much memory there is: the machine's, or what a control group (a container) leaves of it."""

import os
from collections.abc import Iterator
from pathlib import Path

# Where each version of control groups is mounted, and the file that holds a group's limit.
_SECOND = ("sys/fs/cgroup", "memory.max")
_FIRST = ("sys/fs/cgroup/memory", "memory.limit_in_bytes")


def memory_bytes(root: Path = Path("/")) -> int:
    """The memory that this process may use, what is in use included.

    Args:
        root: where the system's files `proc` and `sys` lie.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    """The limits of this process's groups and of those around them; none where there are none."""
    for controllers, path in _groups(root / "proc/self/cgroup"):
        if not controllers:
            mount, name = _SECOND
        elif "memory" in controllers.split(","):
            mount, name = _FIRST
        else:
            continue
        # A container sees its own group as the root, and may be told a path that it cannot see.
        inner = [part for part in path.split("/") if part]
        depth = 0 if ".." in inner else len(inner)
        for count in range(depth + 1):
            limit = _read(root.joinpath(mount, *inner[:count], name))
            if limit is not None and limit.isdecimal():
                yield int(limit)


def _groups(file: Path) -> Iterator[tuple[str, str]]:
    """Controllers (none = the second version) and path of each group."""
    for line in (_read(file) or "").splitlines():
        # number:controllers:path
        if line.count(":") >= 2:
            _, controllers, path = line.split(":", 2)
            yield controllers, path


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
