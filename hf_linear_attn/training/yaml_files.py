"""YAML as people write it: files of `field: value` lines and `field=value` lists."""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.scanner import ScannerError

_OPEN_TO_CLOSE = {"[": "]", "{": "}"}
_BEFORE_A_VALUE = {"", "=", "[", "{", ",", ":"}  # a quote elsewhere is an apostrophe
_MOST_VALUES = 100_000  # with every alias written out: a few lines can stand for any number
_ODD_NUMBER = re.compile(r":|^[-+]?0[0-9_]+$")  # 1:30, 010
_MOST_SHOWN = 40  # characters of a value that cannot be read
# What PyYAML's constructors raise for a text that is not of the kind that its tag says.
_NOT_OF_ITS_KIND = (ValueError, TypeError, LookupError, AttributeError, OverflowError)


class _Loader(yaml.SafeLoader):
    """YAML without Python tags, without repeated keys, with `1e-4` read as a number."""

    def fetch_more_tokens(self) -> None:
        try:
            super().fetch_more_tokens()
        except (ValueError, OverflowError) as error:  # such as "\\UFFFFFFFF", which is no character
            mark = self.get_mark()
            raise ScannerError(None, None, str(error), mark) from error

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep=deep)
        except _NOT_OF_ITS_KIND as error:
            problem = f"{_shown(node)} cannot be read as {_kind(node)}"
            reason = f": {error}" if isinstance(error, ValueError) else ""  # a month 13
            raise yaml.constructor.ConstructorError(
                None, None, problem + reason, node.start_mark
            ) from error
        if _is_odd_number(node):
            problem = f"{_shown(node)} would be {value}; write that, or quotes around a text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            problem = f"{_shown(node)} cannot be read as {_kind(node)}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # a list as key: the base class refuses it
            if key.value in seen:
                problem = f"{key.value!r} is given more than once"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _kind(node: yaml.Node) -> str:
    """The tag as people write it, such as `!!bool`."""
    return node.tag.replace("tag:yaml.org,2002:", "!!")


def _is_odd_number(node: yaml.Node) -> bool:
    """Is it a number to base 60 or 8, which YAML 1.2 and most people read otherwise?"""
    is_number = _kind(node) in ("!!int", "!!float") and isinstance(node, yaml.ScalarNode)
    return is_number and _ODD_NUMBER.search(node.value) is not None


def _shown(node: yaml.Node) -> str:
    """A scalar in quotes, or what else it is."""
    if not isinstance(node, yaml.ScalarNode):
        return "a sequence" if isinstance(node, yaml.SequenceNode) else "a mapping"
    text = repr(node.value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 4]}...'"


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values below a node, aliases written out; refused where it has no end."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = _MOST_VALUES  # what a node that holds itself finds
        pairs = node.value if isinstance(node, yaml.MappingNode) else [(n,) for n in node.value]
        known[id(node)] = 1 + sum(_count(below, known) for pair in pairs for below in pair)
    if known[id(node)] >= _MOST_VALUES:
        problem = f"it unfolds to more than {_MOST_VALUES:,} values"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return known[id(node)]


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads: a text such as 1e-4 has quotes."""


# YAML 1.1 wants a dot and a signed exponent in a float and reads 1e-4 as text.
for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def write_yaml(values: dict[str, Any]) -> str:
    """Plain values as YAML that `parse_yaml` reads back equal, in their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def parse_yaml(text: str, source: str) -> Any:
    """Read YAML text safely.

    Args:
        text: the YAML.
        source: what to call it in an error, such as the file's name.

    Raises:
        ValueError: not YAML, a repeated key, a Python tag, a value that is not what its tag says,
            or aliases that unfold without end; the message gives the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise ValueError(f"{source}{where}: not readable as YAML: {problem}") from error
    except RecursionError as error:
        raise ValueError(f"{source}: not readable as YAML: it is nested too deeply") from error


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """Read a file of `field: value` lines; an empty file is an empty mapping.

    Raises:
        ValueError: missing or unreadable file, not YAML, or not a mapping with text keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ValueError(f"configuration file {str(path)!r} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"configuration file {str(path)!r} cannot be read: {error}") from error
    content = parse_yaml(text, str(path))
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected `field: value` lines, got a {type(content).__name__}")
    for key in content:
        if not isinstance(key, str):
            raise ValueError(f"{path}: expected the name of a field, got the key {key!r}")
    return content


def parse_overrides(text: str) -> dict[str, Any]:
    """Read `field=value,field=value`; values are YAML.

    Args:
        text: commas inside brackets or quotes do not split: `layers=[a, b],name="x, y"`.

    Returns:
        The values by field name, in the order written; `{}` for empty text.

    Raises:
        ValueError: an item without `=`, a field given twice, an open bracket or quote, bad YAML.
    """
    overrides: dict[str, Any] = {}
    for item in _split_at_commas(text):
        field, equals, value = item.partition("=")
        field, value = field.strip(), value.strip()
        if not equals or not field.isidentifier():
            raise ValueError(f"override {item.strip()!r}: expected field=value in {text!r}")
        if not value:
            raise ValueError(f"override {field!r} has no value; write {field}=null for none")
        if field in overrides:
            raise ValueError(f"override {field!r} is given more than once in {text!r}")
        overrides[field] = parse_yaml(value, f"override {field!r}")
    return overrides


def _split_at_commas(text: str) -> list[str]:
    """Split at the commas that stand outside brackets and quotes."""
    items, current, expected, quote = [], "", [], ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and current.rstrip()[-1:] in _BEFORE_A_VALUE:
            quote = character
        elif character in _OPEN_TO_CLOSE:
            expected.append(_OPEN_TO_CLOSE[character])
        elif expected and character == expected[-1]:
            expected.pop()
        elif character == "," and not expected:
            items.append(current)
            current = ""
            continue
        current += character
    if quote or expected:
        raise ValueError(f"{quote or expected[-1]!r} is missing at the end of {text!r}")
    if not items and not current.strip():
        return []
    return [*items, current]
