"""What a conversion did with every tensor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Filled(NamedTuple):
    """Where a tensor of ours came from."""

    source: str
    how: str
    """what was done to it; "" = copied"""


@dataclass
class ConversionReport:
    """Every tensor of the source and of the target, and what else changed.

    Attributes:
        source, target: class names.
        filled: {tensor of the target: where it came from}.
        new: {tensor of the target that nothing of the source could fill: why}.
        used: tensors of the source that the target has, under one name or several.
        dropped: {tensor of the source that the target has no place for: why}.
        notes: what else is different, in sentences.
    """

    source: str
    target: str
    filled: dict[str, Filled] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    dropped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """One line of counts."""
        return (
            f"{self.source} -> {self.target}: {len(self.filled)} tensors filled, {len(self.new)} "
            f"new; of the source's {len(self.used)} used, {len(self.dropped)} dropped"
        )

    def __str__(self) -> str:
        lines = [self.summary()]
        lines += [f"  new: {name} ({why})" for name, why in self.new.items()]
        lines += [f"  dropped: {name} ({why})" for name, why in self.dropped.items()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """All of it as a page with a table of every tensor."""
        filled = {name: f"{x.source}{' (' if x.how else ''}{x.how}{')' if x.how else ''}"
                  for name, x in self.filled.items()}  # fmt: skip
        parts = [f"# {self.source} → {self.target}", self.summary() + "."]
        if self.notes:
            parts.append("\n".join(f"* {note}" for note in self.notes))
        parts += _section("New", ("tensor", "why"), self.new)
        parts += _section("Dropped from the source", ("tensor", "why"), self.dropped)
        parts += _section("Filled", ("tensor", "from"), filled)
        return "\n\n".join(parts) + "\n"


def _section(title: str, head: tuple[str, str], rows: Mapping[str, str]) -> list[str]:
    if not rows:
        return []
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    lines += [f"| {name} | {text} |" for name, text in rows.items()]
    return [f"## {title}", "\n".join(lines)]
