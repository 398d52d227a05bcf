"""One wrong input: what a program is given, and what it has to answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Maker = Callable[[Path, Path], None]


@dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        name: unique, for the test's id.
        program: a key of `programs.PROGRAMS`.
        given: what is wrong, in words, for the table.
        says: what the one line of the answer holds; `…` stands for anything.
        argv: added to the program's own arguments.
        make: puts files into the folder in which the program starts; the second argument is a
            folder of sound models to copy from.
        works: the input is unusual and not wrong: the program ends well, and says this.
    """

    name: str
    program: str
    given: str
    says: str
    argv: tuple[str, ...] = ()
    make: tuple[Maker, ...] = field(default=())
    works: bool = False


def holds(line: str, says: str) -> bool:
    """Whether the parts of `says` stand in a line, one behind the other."""
    at = 0
    for part in says.split("…"):
        at = line.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
