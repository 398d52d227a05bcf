"""A column of labels is read as a whole: as the names of the classes, or as their numbers.

A single value says little: 4 may be the fifth class, or the one called 4. All values of a column
together, those of every split, tell which it is, or that it cannot be told.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hf_linear_attn.training.glue.tasks import LabelForm

_WHOLE = re.compile(r"([+-]?\d+)(\.0*)?")
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_HIDDEN = "-1"  # in published test sets
_BOOLEANS = {"true": "1", "false": "0"}


@dataclass(frozen=True)
class LabelColumn:
    """How the values of one column become text.

    Attributes:
        by_number: text of a number -> class; None where the column holds names, or the numbers of
            a regression.
        tidies: 5.0 and 05 are 5, also where they are text.
        hides: -1 is a missing label.
    """

    by_number: tuple[tuple[str, str], ...] | None = None
    tidies: bool = False
    hides: bool = False

    def text(self, value: Any) -> str:
        """A label as text: the class's name or a number; empty where it is missing."""
        text = _plain(value, self.tidies)
        if self.hides and text == _HIDDEN:
            return ""
        if not text or self.by_number is None:
            return text
        return dict(self.by_number)[_BOOLEANS.get(text, text)]


def read_label_column(
    values: Iterable[Any],
    form: LabelForm,
    classes: Sequence[str] | None,
    where: str,
    from_zero: bool = False,
) -> tuple[LabelColumn, str | None]:
    """Decide how a column is read.

    Args:
        values: all different ones, of every split.
        form: what the task has in such a column; numbers may be names all the same.
        classes: by number; None where they are not known, () of a regression.
        where: source and column, for messages.
        from_zero: numbers point into `classes`, whatever the classes are called.

    Returns:
        How it is read, and a remark where that had to be found out.

    Raises:
        ValueError: names and numbers in one column, a number without a class, numbers that may be
            two things, or fractions for classes.
    """
    numbered = bool(classes) and not from_zero and all(n.isdecimal() for n in classes or ())
    tidies = form == "ids" or numbered
    found = {_plain(value, tidies) for value in values} - {""}
    if classes is None:
        _refuse_fractions(found, where)
    if form == "names":
        return LabelColumn(tidies=tidies), None
    found.discard(_HIDDEN)
    if not classes:
        return LabelColumn(tidies=True, hides=True), None
    numbers, names = _numbers_and_names(found, where)
    if names:
        return LabelColumn(hides=True), None
    find = _first_number if numbered else _from_zero
    first = find(numbers, classes, where)
    ours = tuple((str(first + place), name) for place, name in enumerate(classes))
    remark = f"{where} numbers the classes {classes[0]} to {classes[-1]} from {first}"
    return LabelColumn(ours, tidies=True, hides=True), remark if numbered else None


def _numbers_and_names(found: set[str], where: str) -> tuple[set[int], set[str]]:
    """One of them is empty."""
    texts = {_BOOLEANS.get(text, text) for text in found}
    names = {text for text in texts if not _INTEGER.fullmatch(text)}
    numbers = {int(text) for text in texts - names}
    if names and numbers:
        raise ValueError(
            f"{where} holds names ({min(names)!r}) and numbers ({min(numbers)}): give one or the "
            "other in all rows"
        )
    return numbers, names


def _from_zero(numbers: set[int], classes: Sequence[str], where: str) -> int:
    outside = sorted(n for n in numbers if not 0 <= n < len(classes))
    if outside:
        raise ValueError(
            f"{where}: label '{outside[0]}' is unknown, expected 0 to {len(classes) - 1} or one of "
            f"{', '.join(classes)}"
        )
    return 0


def _first_number(numbers: set[int], classes: Sequence[str], where: str) -> int:
    """The number of the first class: 0, or its own name."""
    count, own = len(classes), int(classes[0])
    starts = [start for start in {0, own} if all(start <= n < start + count for n in numbers)]
    ranges = f"0 to {count - 1} or {own} to {own + count - 1}"
    if not starts:
        got = f"{min(numbers)} to {max(numbers)}"
        raise ValueError(f"{where} holds {got}, expected {ranges} in all rows")
    if numbers and len(starts) > 1:
        raise ValueError(
            f"{where} holds {', '.join(map(str, sorted(numbers)))}, which may be a part of "
            f"{ranges}; rename the column to stars if they are the classes {', '.join(classes)}, "
            "or give rows of all classes"
        )
    return starts[0]


def _refuse_fractions(found: set[str], where: str) -> None:
    if found and all(_NUMBER.fullmatch(text) for text in found):
        broken = sorted(text for text in found if not float(text).is_integer())
        if broken:
            raise ValueError(
                f"{where} holds fractions ({broken[0]}), which name no class: pass --problem "
                "regression to learn them as numbers, or list them as --class_names"
            )


def _plain(value: Any, tidies: bool) -> str:
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    if tidies:
        text = text.lower() if text.lower() in _BOOLEANS else text
        whole = _WHOLE.fullmatch(text)
        return str(int(whole[1])) if whole else text
    return text
