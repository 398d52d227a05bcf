"""How many processes are worth their start."""

import os

# Beyond, what one process reads and writes for all of them takes the time.
_MOST = 16


def useful_processes(wanted: int | None, items: int) -> int | None:
    """No more processes than items; None for a single one, which needs no other process."""
    useful = min(wanted or 1, items)
    return useful if useful > 1 else None


def usable_cores() -> int:
    """Cores that this process may run on, 16 at most."""
    asked = getattr(os, "sched_getaffinity", None)
    cores = os.cpu_count() if asked is None else len(asked(0))
    return min(cores or 1, _MOST)


def worthwhile_processes(wanted: int | None, items: int, least: int) -> int | None:
    """As `useful_processes`; where no number is wanted, all usable cores with work enough for each.

    Args:
        wanted: as it is asked for; None = all usable cores.
        items: to be done.
        least: so many items are worth the start of a process.
    """
    if wanted is None:
        wanted = min(usable_cores(), items // least)
    return useful_processes(wanted, items)
