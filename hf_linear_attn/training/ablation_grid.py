"""A grid of recipe runs: axes of named settings, crossed, over seeds."""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from hf_linear_attn.training.casting import cast_value, did_you_mean
from hf_linear_attn.training.yaml_files import parse_overrides, read_yaml_mapping

_OVERRIDES = "config_overrides"
_LONGEST_NAME = 255  # of a folder, in Linux's file systems
# A width or a precision within braces.
_WIDE = re.compile(r"\{[^}]*\d{3}")
_MOST_CELLS = 10_000
# What the grid itself decides.
_OF_THE_GRID = ("seed", "output_dir", "config")


@dataclass(frozen=True)
class Value:
    """One value on an axis.

    Attributes:
        name: as it stands in the table.
        arguments: of the recipe, by field name.
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """One thing that is varied, and its values in the order of the plot."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Metric:
    """What is compared.

    Attributes:
        key: in a run's `all_results.json`.
        label: with its unit.
        greater_is_better: whether the highest mean is the best.
        pattern: how it is printed.
        scale: factor in print, 100 for per cent.
        baseline: key of what each run has measured beside it, such as a unigram model; None = none.
        baseline_label: its heading.
    """

    key: str
    label: str
    greater_is_better: bool = False
    pattern: str = "{:.4f}"
    scale: float = 1.0
    baseline: str | None = None
    baseline_label: str = "baseline"

    def __post_init__(self) -> None:
        """Check the pattern and the scale before anything is run."""
        if _WIDE.search(self.pattern):
            raise ValueError(
                f"metric: pattern {self.pattern!r} asks for 100 characters or more; expected "
                "such as '{:.4f}'"
            )
        try:
            self.pattern.format(0.0)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise ValueError(
                f"metric: pattern {self.pattern!r} does not format a number ({error}); such as "
                "'{:.4f}'"
            ) from None
        if not 0 < abs(self.scale) < math.inf:
            raise ValueError(f"metric: scale is {self.scale}; expected a number other than 0")


@dataclass(frozen=True)
class Grid:
    """All that an ablation file says.

    Attributes:
        title: of table and plot.
        config: YAML files of the recipe that every run starts from.
        metric: what is compared.
        axes: what is varied.
        arguments: of the recipe, the same in every run.
    """

    title: str
    config: tuple[Path, ...]
    metric: Metric
    axes: tuple[Axis, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)


Cell = tuple[Value, ...]
"""one value of each axis"""


def read_grid(path: Path) -> Grid:
    """Read an ablation file; files named in it are looked for from the current folder.

    Raises:
        ValueError: a missing or unknown field, a wrong type, an axis without values, a name twice.
    """
    content = _fields(read_yaml_mapping(path), Grid, str(path))
    metric = Metric(**_fields(content["metric"], Metric, f"{path}: metric"))
    axes = tuple(_axis(entry, f"{path}: axes") for entry in _list(content["axes"], path))
    _check_names([axis.name for axis in axes], f"{path}: axes")
    files = content["config"]
    files = [files] if isinstance(files, str) else files
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise ValueError(f"{path}: config: expected a file or a list of files; got {files!r}")
    arguments = _arguments(content.get("arguments"), f"{path}: arguments")
    return Grid(content["title"], tuple(map(Path, files)), metric, axes, arguments)


def cells_of(grid: Grid) -> list[Cell]:
    """All combinations, the last axis fastest.

    Raises:
        ValueError: more than anyone could run, two with one name, or a name that no folder has.
    """
    number = math.prod(len(axis.values) for axis in grid.axes)
    if number > _MOST_CELLS:
        raise ValueError(
            f"axes: their values make {number:,} cells, expected {_MOST_CELLS:,} at most; leave "
            "values out"
        )
    cells = list(itertools.product(*(axis.values for axis in grid.axes)))
    slugs = [slug(cell) for cell in cells]
    for name, cell in zip(slugs, cells, strict=True):
        if len(name) > _LONGEST_NAME:
            longest = max((value.name for value in cell), key=len)
            raise ValueError(
                f"axes: the names of a cell's values make a folder's name of {len(name)} "
                f"characters, expected {_LONGEST_NAME} at most; shorten {longest!r}"
            )
    _check_names(slugs, "folders of the grid")
    return cells


def slug(cell: Cell) -> str:
    """Name of a cell's folder."""
    words = (re.sub(r"[^a-z0-9]+", "-", value.name.lower()).strip("-") for value in cell)
    return "--".join(words)


def run_settings(grid: Grid, cell: Cell, extra: Mapping[str, Any]) -> dict[str, Any]:
    """All recipe arguments of a cell but seed and output folder.

    The recipe's YAML files come first, then the grid's arguments, then `extra`, then the cell's. A
    mapping is merged key by key, and `config_overrides` of all of them are put in a row.

    Args:
        grid: see `Grid`.
        cell: one of its cells.
        extra: for every run, such as from the command line.

    Raises:
        ValueError: two axes, or an axis and `extra`, set the same argument or config field.
    """
    settings: dict[str, Any] = {}
    overrides: list[str] = []
    layers = [*map(read_yaml_mapping, grid.config), grid.arguments, extra]
    for layer in layers:
        _put(settings, overrides, layer)
    taken = dict.fromkeys(extra, "the arguments of every run")
    for axis, value in zip(grid.axes, cell, strict=True):
        for name in value.arguments:
            if name in taken and name != _OVERRIDES:
                raise ValueError(f"{name} is set by axis {axis.name!r} and by {taken[name]}")
            taken[name] = f"axis {axis.name!r}"
        _put(settings, overrides, value.arguments)
    if overrides:
        settings[_OVERRIDES] = ",".join(overrides)
        parse_overrides(settings[_OVERRIDES])  # a field that is set twice is an error
    return settings


def _put(settings: dict[str, Any], overrides: list[str], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        if name == _OVERRIDES:
            if not isinstance(value, str | None):
                raise ValueError(f"{_OVERRIDES}: got {value!r}, expected text, field=value,…")
            overrides.extend([value] if value else [])
        elif isinstance(value, dict) and isinstance(settings.get(name), dict):
            settings[name] = {**settings[name], **value}
        else:
            settings[name] = value


def _axis(entry: Any, where: str) -> Axis:
    content = _fields(entry, Axis, where)
    name = _name(content["name"], where)
    where = f"{where}: {name}"
    values = []
    for value in _list(content["values"], where):
        named = _fields(value, Value, where)
        values.append(Value(_name(named["name"], where), _arguments(named["arguments"], where)))
    _check_names([value.name for value in values], where)
    return Axis(name, tuple(values))


def _fields(content: Any, kind: type, where: str) -> dict[str, Any]:
    """Check that a mapping has the fields of a dataclass and no others, and its plain values."""
    known = dataclasses.fields(kind)
    names = [f.name for f in known]
    if not isinstance(content, dict):
        raise ValueError(f"{where}: expected {', '.join(names)}; got {content!r}")
    for name in content:
        if name not in names:
            raise ValueError(f"{where}: unknown field {name!r}{did_you_mean(str(name), names)}")
    for f in known:
        optional = f.default is not dataclasses.MISSING
        if not (optional or f.default_factory is not dataclasses.MISSING or f.name in content):
            raise ValueError(f"{where}: {f.name} is missing")
    return {name: _plain(value, kind, name, where) for name, value in content.items()}


def _plain(value: Any, kind: type, name: str, where: str) -> Any:
    """A number, a text or a switch as the field of that name has it; others are left alone."""
    hint = get_type_hints(kind)[name]
    if name == "name" or hint not in (str, bool, float, str | None):
        return value
    try:
        return cast_value(value, hint)
    except ValueError as error:
        raise ValueError(f"{where}: {name}: {error}") from None


def _name(content: Any, where: str) -> str:
    """A name, which may be a number: `name: 0.1`."""
    if not isinstance(content, str | int | float) or not str(content).strip():
        raise ValueError(f"{where}: name: expected a text or a number; got {content!r}")
    return str(content)


def _arguments(content: Any, where: str) -> dict[str, Any]:
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ValueError(f"{where}: arguments are a mapping of recipe fields; got {content!r}")
    for name in _OF_THE_GRID:
        if name in content:
            raise ValueError(f"{where}: {name} is set for each run by itself; leave it out")
    return content


def _list(content: Any, where: Any) -> Sequence[Any]:
    if not isinstance(content, list) or not content:
        raise ValueError(f"{where}: expected a list of one or more; got {content!r}")
    return content


def _check_names(names: Sequence[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: {name!r} is there more than once")
