"""The official tab-separated files: no quotes, with or without a header, a byte-order mark or not.

A quotation mark in them is text, so a reader that knows quotes joins rows that do not belong
together.
"""

from collections.abc import Iterator
from pathlib import Path

from hf_linear_attn.training.glue.tasks import Task, TsvLayout

Positions = dict[str, int]


def read_official(
    file: str, task: Task, layout: TsvLayout, identity: tuple[str, int, int]
) -> Iterator[dict[str, str | int]]:
    """The rows of an official file.

    Args:
        file: exists.
        task: whose file it is.
        layout: of the file.
        identity: not read; it makes the cache of `datasets` follow a changed file.

    Yields:
        text, text_pair where there is one, label (a class's name or a number's text; empty where
        the file has none) and index (that of the file, or the row's number from 0).

    Raises:
        ValueError: the columns of another task, a row that is cut off, or a label that does not
            exist; with the line's number.
    """
    for count, (line, cells, positions) in enumerate(_whole_rows(file, task, layout)):
        row: dict[str, str | int] = {
            name: cells[positions[name]].strip()
            for name in ("text", "text_pair")
            if name in positions
        }
        raw = cells[positions["label"]].strip() if "label" in positions else ""
        row["label"] = _label(raw, task, layout, f"{file}, line {line}") if raw else ""
        row["index"] = count
        if "index" in positions:
            row["index"] = _index(cells[positions["index"]], f"{file}, line {line}")
        yield row


def count_broken(file: str, task: Task, layout: TsvLayout) -> int:
    """How many rows of an official file are cut off and therefore left out."""
    if not layout.skips_broken:
        return 0
    rows = sum(1 for _ in _all_rows(file, task, layout))
    return rows - sum(1 for _ in _whole_rows(file, task, layout))


def check_file(path: Path, task: Task, layout: TsvLayout) -> None:
    """Raise ValueError for a file whose columns are not those of the task, or without rows."""
    if next(_whole_rows(str(path), task, layout), None) is None:
        raise ValueError(f"{path} has no rows below its header; give the whole file, or remove it")


def _whole_rows(
    file: str, task: Task, layout: TsvLayout
) -> Iterator[tuple[int, list[str], Positions]]:
    for line, cells, positions in _all_rows(file, task, layout):
        if len(cells) > max(positions.values()):
            yield line, cells, positions
        elif not layout.skips_broken:
            raise ValueError(
                f"{file}, line {line}: got {len(cells)} columns, expected "
                f"{max(positions.values()) + 1} at least; the row is cut off"
            )


def _all_rows(
    file: str, task: Task, layout: TsvLayout
) -> Iterator[tuple[int, list[str], Positions]]:
    """Line number, cells and positions of each row that is not blank."""
    with open(file, encoding="utf-8-sig", newline="") as opened:
        positions: Positions | None = None
        # `csv` would refuse cells above a limit, and has nothing to add where there are no quotes.
        for number, line in enumerate(opened, start=1):
            cells = line.rstrip("\r\n").split("\t")
            if not any(cell.strip() for cell in cells):
                continue
            if positions is None:
                positions = _positions(file, cells, task, layout)
                if layout.width is None:
                    continue
            yield number, cells, positions


def _positions(file: str, first: list[str], task: Task, layout: TsvLayout) -> Positions:
    if layout.width is not None:
        if len(first) != layout.width:
            raise ValueError(
                f"{file}: got {len(first)} columns, expected {layout.width} without a header for "
                f"task {task.name}: is it the file of another task?"
            )
        return {ours: int(position) for ours, position in layout.columns.items()}
    header = [cell.strip() for cell in first]
    missing = [str(name) for name in layout.columns.values() if name not in header]
    if missing:
        raise ValueError(
            f"{file}: no column {missing[0]!r}, only {', '.join(header[:8])}; task {task.name} has "
            f"{', '.join(map(str, layout.columns.values()))}: is it the file of another task?"
        )
    return {ours: header.index(str(name)) for ours, name in layout.columns.items()}


def _label(raw: str, task: Task, layout: TsvLayout, where: str) -> str:
    """The class's name; the text as it is for a regression."""
    names = task.labels
    if not names:
        return raw
    if layout.label_form == "names" and raw in names:
        return raw
    if layout.label_form == "ids" and raw in map(str, range(len(names))):
        return names[int(raw)]
    expected = names if layout.label_form == "names" else range(len(names))
    raise ValueError(
        f"{where}: label {raw!r} is unknown in task {task.name}, expected one of "
        f"{', '.join(map(str, expected))}"
    )


def _index(raw: str, where: str) -> int:
    if not raw.strip().isdecimal():
        raise ValueError(f"{where}: index {raw!r} is no whole number")
    return int(raw)
