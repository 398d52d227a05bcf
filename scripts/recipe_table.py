"""Write the README's table of recipes from `docs/recipes.yaml`.

    python scripts/recipe_table.py           # print it
    python scripts/recipe_table.py --write   # put it between the two markers of README.md

Published results come from `hf_linear_attn.training.published`, which says what may be printed.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.published import footnotes, printable_rows, published_table
from hf_linear_attn.training.yaml_files import read_yaml_mapping

ROOT = Path(__file__).resolve().parents[1]
DATA, README = ROOT / "docs" / "recipes.yaml", ROOT / "README.md"
BEGIN = "<!-- recipes: begin (written by scripts/recipe_table.py) -->"
END = "<!-- recipes: end -->"
_HEADINGS = ("task", "command", "hardware", "time", "result here", "published")
_SIGNS = "†‡§¶‖#"
_NOT_RUN = "not run here"


@dataclass(frozen=True)
class Published:
    """Which published figure belongs to a recipe: see `hf_linear_attn.training.published`."""

    table: str
    row: str
    column: str


@dataclass(frozen=True)
class Entry:
    """One line of the table.

    Attributes:
        task: in words.
        recipe: the program, from the root.
        config: its YAML file, from the root; None = what the recipe does without one.
        arguments: further ones, as they are typed.
        hardware: where it was run, or what it is meant for.
        time: how long it took there; None = it was not run.
        result: what it reached there; None = it was not run.
        published: the figure to compare with, None if there is none.
        launch: the words before the recipe.
    """

    task: str
    recipe: str
    hardware: str
    config: str | None = None
    arguments: str = ""
    time: str | None = None
    result: str | None = None
    published: Published | None = None
    launch: str = "accelerate launch"

    @property
    def command(self) -> str:
        """As it is typed in the root of the repository."""
        config = [] if self.config is None else ["--config", self.config]
        words = [self.launch, self.recipe, *config, self.arguments]
        return " ".join(word for word in words if word)


def main(argv: list[str]) -> None:
    """Print the table, or write it into the README."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    args = parser.parse_args(argv)
    table = render(read_entries(DATA))
    if not args.write:
        sys.stdout.write(table)
        return
    write_atomically(README, with_table(README.read_text(encoding="utf-8"), table))


def read_entries(path: Path) -> list[Entry]:
    """The lines of the table, in order.

    Raises:
        ValueError: an unknown or missing field, or a file that does not exist.
    """
    content = read_yaml_mapping(path)
    return [_entry(fields_of, f"{path.name}: {name}") for name, fields_of in content.items()]


def render(entries: list[Entry]) -> str:
    """The table as Markdown, with the footnotes of its published figures."""
    lines = [_row(_HEADINGS), "|" + " --- |" * len(_HEADINGS)]
    signs: dict[str, str] = {}
    for entry in entries:
        text, own = _published(entry.published)
        # Each table has signs of its own; here a note has one for all lines.
        for note in own:
            signs.setdefault(note[1:], _SIGNS[len(signs)])
        text = text.translate({ord(note[0]): signs[note[1:]] for note in own})
        figures = (entry.time or _NOT_RUN, entry.result or _NOT_RUN)
        lines.append(_row((entry.task, f"`{entry.command}`", entry.hardware, *figures, text)))
    notes = [f"{sign}{note}\n" for note, sign in signs.items()]
    return "\n".join([*lines, "", *notes]).rstrip("\n") + "\n"


def with_table(readme: str, table: str) -> str:
    """The README with the table between its markers.

    Raises:
        ValueError: the markers are not there once each, in order.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"README.md must have the lines {BEGIN!r} and {END!r} once, in this order")
    return f"{before}{begin}\n{table}{end}{after}"


def _published(source: Published | None) -> tuple[str, list[str]]:
    """A figure with what it is and where it stands, and its footnotes."""
    if source is None:
        return "–", []
    table = published_table(source.table)
    if source.column not in table.columns or source.row not in {row.name for row in table.rows}:
        known = ", ".join(row.name for row in table.rows)
        raise ValueError(
            f"table {table.id} has the columns {', '.join(table.columns)} and the rows {known}; "
            f"got column {source.column!r} and row {source.row!r}"
        )
    rows = [row for row in printable_rows(table) if row.name.rstrip("§") == source.row]
    cell = rows[0].cells[table.columns.index(source.column)] if rows else "–"
    if cell == "–":
        return "–", []
    sign = "§" if rows[0].name.endswith("§") else ""
    signs = {*cell, sign}
    notes = [note for note in footnotes(rows) if note[0] in signs]
    what = (
        f"{source.column} {table.metric}" if source.column != "average" else f"mean {table.metric}"
    )
    return f"{cell}{sign} {what}, {source.row} ({table.title}; {table.source})", notes


def _entry(content: Any, where: str) -> Entry:
    entry = Entry(**_checked(content, Entry, where))
    if isinstance(entry.published, dict):
        published = Published(**_checked(entry.published, Published, f"{where}: published"))
        entry = Entry(**{**content, "published": published})
    for file in (entry.recipe, entry.config):
        if file is not None and not (ROOT / file).is_file():
            raise ValueError(f"{where}: {file} does not exist")
    return entry


def _checked(content: Any, kind: type, where: str) -> dict[str, Any]:
    names = [f.name for f in fields(kind)]
    if not isinstance(content, dict):
        raise ValueError(f"{where}: expected the fields {', '.join(names)}; got {content!r}")
    for name in content:
        if name not in names:
            raise ValueError(f"{where}: unknown field {name!r}{did_you_mean(str(name), names)}")
    try:
        kind(**content)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
    return content


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    run_program(main)
