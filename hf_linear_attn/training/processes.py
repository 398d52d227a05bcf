"""How many processes are worth their start."""


def useful_processes(wanted: int | None, items: int) -> int | None:
    """No more processes than items; None for a single one, which needs no other process."""
    useful = min(wanted or 1, items)
    return useful if useful > 1 else None
