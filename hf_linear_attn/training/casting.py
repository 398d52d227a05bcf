"""What a person wrote, cast to the annotated type of a field."""

import dataclasses
import difflib
import types
from collections.abc import Iterable
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from hf_linear_attn.training.yaml_files import parse_yaml

_TRUE = {"true", "yes", "y", "t", "1", "on"}
_FALSE = {"false", "no", "n", "f", "0", "off"}


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known word, or nothing where none is near."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def cast_value(value: Any, hint: Any) -> Any:
    """Turn a YAML value into what a field's annotation asks for, without loss.

    Args:
        value: as YAML gives it.
        hint: bool, int, float, str, list, dict, Enum, Literal, dataclass, None or a union.

    Returns:
        The value; a single item where only a list is accepted becomes a list of one.

    Raises:
        ValueError: `got …, expected …`, for the caller to put the field's name before.
    """
    options = _options(hint)
    for option in sorted(options, key=lambda option: _rank(option, value)):
        try:
            return _cast_one(value, option)
        except _WrongType:
            continue
    raise ValueError(_expectation(value, options))


def cast_text(text: str | list[str], hint: Any) -> Any:
    """Turn a command line's text into what a field's annotation asks for.

    Args:
        text: `null` means None where the field may be None; a mapping is written as JSON.
        hint: as in `cast_value`.

    Raises:
        ValueError: `got …, expected …`.
    """
    options = _options(hint)
    if isinstance(text, list):
        if len(text) > 1:
            return cast_value(text, hint)
        text = text[0]
    if text == "null" and type(None) in options:
        return None
    return cast_value(_read_text(text, options), hint)


class _WrongType(Exception):
    """This option of a union does not fit; the next one may."""


def _options(hint: Any) -> list[Any]:
    """The members of a union; a text beside an Enum only stands for its values, so it goes."""
    options = list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]
    enums = [option for option in options if _is_enum(option)]
    return [option for option in options if not (enums and option is str)]


def _rank(option: Any, value: Any) -> int:
    """Text fits everything and a list can be made of anything: they are tried last."""
    if _is(option, list):
        return 0 if isinstance(value, list) else 2
    return 1 if option is str else 0


def _read_text(text: str, options: list[Any]) -> Any:
    """What a piece of command line stands for, given the types that it may have."""
    truths = bool in options or any(False in get_args(option) for option in options)
    if truths and text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    mappings = any(_is(option, dict) or dataclasses.is_dataclass(option) for option in options)
    return parse_yaml(text, repr(text)) if mappings and text.lstrip().startswith("{") else text


def _is(option: Any, kind: type) -> bool:
    return (get_origin(option) or option) is kind


def _is_enum(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, Enum)


def _cast_one(value: Any, option: Any) -> Any:
    if get_origin(option) is Literal or _is_enum(option):
        return _cast_choice(value, option)
    if option is float or option is int:
        return _cast_number(value, option)
    if _is(option, list) and value is not None:
        (item_hint,) = get_args(option) or (str,)
        return [_cast_one(item, item_hint) for item in (value if _is_list(value) else [value])]
    if dataclasses.is_dataclass(option) and isinstance(option, type) and isinstance(value, dict):
        return _build_dataclass(value, option)
    if option is str and isinstance(value, str) and "\0" in value:
        raise ValueError(f"got {_show(value)}, expected text without a NUL")
    kind = get_origin(option) or option
    return value if isinstance(kind, type) and isinstance(value, kind) else _refuse()


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _cast_number(value: Any, kind: type[int] | type[float]) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _refuse()
    if kind is int and isinstance(value, int):
        return value
    if kind is int and isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)  # every digit of it
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return _refuse()
    if kind is float:
        return number
    return int(number) if number.is_integer() else _refuse()


def _cast_choice(value: Any, option: Any) -> Any:
    for choice in _choices(option):
        # YAML reads a bare `no` as false; and 0 == False in Python, not for a person.
        written = "no" if value is False and choice == "no" else value
        if choice == written and type(choice) is type(written):
            return option(choice) if _is_enum(option) else choice
    return _refuse()


def _build_dataclass(value: dict[str, Any], kind: type) -> Any:
    known = [field.name for field in dataclasses.fields(kind) if field.init]
    for name in value:
        if name not in known:
            raise ValueError(
                f"unknown field {name!r} of {kind.__name__}{did_you_mean(name, known)}"
            )
    return kind(**value)


def _refuse() -> Any:
    raise _WrongType


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _expectation(value: Any, options: list[Any]) -> str:
    """`got …, expected …` with the choices spelled out and the nearest one named."""
    choices = [str(choice) for option in options for choice in _choices(option)]
    names = [_name(option) for option in options if not _choices(option)]
    if choices and set(names) <= {"null"}:
        expected = f"one of {', '.join(choices + names)}"
        return f"got {_show(value)}, expected {expected}{did_you_mean(str(value), choices)}"
    quote = "; put it in quotes" if str in options and not isinstance(value, list | dict) else ""
    return f"got {_show(value)}, expected {' or '.join(names + choices)}{quote}"


def _choices(option: Any) -> list[Any]:
    if get_origin(option) is Literal:
        return list(get_args(option))
    return [member.value for member in option] if _is_enum(option) else []


def accepts_list(hint: Any) -> bool:
    """May a field with this annotation be a list?"""
    return any(_is(option, list) for option in _options(hint))


def is_switch(hint: Any) -> bool:
    """Is a field with this annotation true or false, and nothing else that has a text?"""
    return {bool} == {option for option in _options(hint) if option is not type(None)}


def placeholder(hint: Any) -> str:
    """What stands for a value in `--help`: `FLOAT`, `{drop,pad,keep}`, `JSON`."""
    options = [option for option in _options(hint) if option is not type(None)]
    choices = [str(choice) for option in options for choice in _choices(option)]
    if choices and len(options) == 1:
        return "{" + ",".join(choices) + "}" if len(choices) <= 6 else "NAME"
    short = {"true or false": "BOOL", "a whole number": "INT", "a number": "FLOAT"}
    short |= {"a mapping": "JSON"}
    names = [short.get(_name(option), "TEXT") for option in options]
    return "|".join(dict.fromkeys(names))


def _name(option: Any) -> str:
    """What a person calls the values of a type."""
    if _is(option, list):
        return "a list"
    if _is(option, dict) or dataclasses.is_dataclass(option):
        return "a mapping"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names.get(option, "null" if option is type(None) else str(option))
