"""Results that papers published, and the rule by which they may be printed.

A figure that was checked at its source is printed plain. One from notes on the paper, or one that
is recalled and agrees with the average published, is printed with a footnote that says so. One that
is recalled and not checked is never printed. Tables of two harnesses are never mixed.

The figures stand in `published_results.yaml` beside this file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast, get_args

from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.yaml_files import read_yaml_mapping

Mark = Literal["V", "S", "R=avg", "R"]

_FILE = Path(__file__).with_name("published_results.yaml")
_NOT_PRINTED = "–"
_SIGNS: dict[Mark, str] = {"V": "", "S": "†", "R=avg": "‡"}
_NOTE_SIGN = "§"
_FOOTNOTES = {
    "†": "† from notes on the paper, not checked against the paper itself",
    "‡": "‡ recalled, not checked cell by cell; the row's mean is the average that was published",
}


@dataclass(frozen=True)
class PublishedRow:
    """One published result.

    Attributes:
        name: of the model.
        values: by column; a cell that was not published is not there.
        marks: by column, for the same columns.
        note: a remark that is printed with the row.
    """

    name: str
    values: Mapping[str, float]
    marks: Mapping[str, Mark]
    note: str | None = None


@dataclass(frozen=True)
class PublishedTable:
    """One table of a paper.

    Attributes:
        id: such as "lra_official".
        title: one line.
        harness: what data, lengths and model sizes were used; tables of two harnesses cannot be
            compared.
        metric: of every cell, with its unit.
        digits: after the decimal point, as published.
        source: paper and table.
        columns: ids of tasks or splits.
        rows: in the paper's order.
    """

    id: str
    title: str
    harness: str
    metric: str
    digits: int
    source: str
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]


@dataclass(frozen=True)
class PrintableRow:
    """A row as it may be printed.

    Attributes:
        name: of the model, with a sign where a note belongs to it.
        cells: one text a column, with its footnote's sign; "–" where there is nothing to print.
        footnotes: the full text of each sign used.
    """

    name: str
    cells: tuple[str, ...]
    footnotes: tuple[str, ...]


def published_table(table_id: str) -> PublishedTable:
    """The table of that id, with all its cells: `printable_rows` says which may be printed.

    Raises:
        ValueError: unknown id.
    """
    tables = published_tables()
    if table_id not in tables:
        raise ValueError(
            f"no published table {table_id!r}{did_you_mean(table_id, tables)}; known are "
            f"{', '.join(tables)}"
        )
    return tables[table_id]


@lru_cache(maxsize=1)
def published_tables() -> Mapping[str, PublishedTable]:
    """All tables by id."""
    content = read_yaml_mapping(_FILE)
    return {table_id: _table(table_id, fields) for table_id, fields in content.items()}


def printable_rows(*tables: PublishedTable) -> list[PrintableRow]:
    """The rows of one table, or of several of the same harness, that may be printed.

    Rows without any printable cell are left out.

    Args:
        tables: with the same columns.

    Raises:
        ValueError: no table, tables of two harnesses, or other columns.
    """
    if not tables:
        raise ValueError("no published table is given")
    harnesses = sorted({table.harness for table in tables})
    if len(harnesses) > 1:
        raise ValueError(
            f"published results of the harnesses {' and '.join(harnesses)} cannot be compared; "
            "print them in tables of their own"
        )
    if len({table.columns for table in tables}) > 1:
        raise ValueError(
            f"the tables {', '.join(table.id for table in tables)} have different columns; "
            "print them in tables of their own"
        )
    rows = [_printable(row, table) for table in tables for row in table.rows]
    return [row for row in rows if any(cell != _NOT_PRINTED for cell in row.cells)]


def footnotes(rows: Sequence[PrintableRow]) -> list[str]:
    """What stands below a table of these rows, each footnote once."""
    return list(dict.fromkeys(note for row in rows for note in row.footnotes))


def printable_cell(table_id: str, row: str, column: str) -> str:
    """One cell as it may be printed, with its footnote's sign; "–" if it may not.

    Raises:
        ValueError: unknown table, row or column.
    """
    table = published_table(table_id)
    if column not in table.columns:
        raise ValueError(f"table {table_id} has the columns {', '.join(table.columns)}: {column!r}")
    for known in table.rows:
        if known.name == row:
            return _cell(known, column, table.digits)
    names = ", ".join(known.name for known in table.rows)
    raise ValueError(f"table {table_id} has no row {row!r}; its rows are {names}")


def _printable(row: PublishedRow, table: PublishedTable) -> PrintableRow:
    cells = tuple(_cell(row, column, table.digits) for column in table.columns)
    notes = [note for sign, note in _FOOTNOTES.items() if any(sign in cell for cell in cells)]
    if row.note:
        notes.append(f"{_NOTE_SIGN} {row.note}")
    return PrintableRow(row.name + (_NOTE_SIGN if row.note else ""), cells, tuple(notes))


def _cell(row: PublishedRow, column: str, digits: int) -> str:
    if column not in row.values or row.marks[column] == "R":
        return _NOT_PRINTED
    return f"{row.values[column]:.{digits}f}{_SIGNS[row.marks[column]]}"


def _table(table_id: str, fields: dict) -> PublishedTable:
    columns = tuple(fields["columns"])
    rows = tuple(_row(entry, columns) for entry in fields.pop("rows"))
    return PublishedTable(id=table_id, **{**fields, "columns": columns, "rows": rows})


def _row(entry: dict, columns: tuple[str, ...]) -> PublishedRow:
    given = zip(columns, entry["values"], strict=True)
    values = {column: float(value) for column, value in given if value is not None}
    cells = entry.get("cells", {})
    marks: dict[str, Mark] = {c: _mark(cells.get(c, entry["mark"])) for c in values}
    return PublishedRow(entry["name"], values, marks, entry.get("note"))


def _mark(text: str) -> Mark:
    if text not in get_args(Mark):
        raise ValueError(f"mark {text!r}: expected one of {', '.join(get_args(Mark))}")
    return cast(Mark, text)
