"""From YAML files with the command line over them to dataclasses."""

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Union, get_type_hints

from transformers import HfArgumentParser

from hf_linear_attn.training.casting import (
    accepts_list,
    cast_text,
    cast_value,
    did_you_mean,
    is_switch,
    placeholder,
)
from hf_linear_attn.training.yaml_files import read_yaml_mapping

# What a recipe always does. Transformers leaves these to the program, with False as their default.
_ALWAYS = ("do_train", "do_eval")
_USAGE = "accelerate launch %(prog)s --config FILE… --any_field value"


class RecipeParser(HfArgumentParser):
    """Every field of the dataclasses can be set in a YAML file and on the command line.

    Args:
        dataclass_types: one dataclass or several, `TrainingArguments` last; no field name twice.
        kwargs: as for `argparse.ArgumentParser`.
    """

    def __init__(self, dataclass_types: Any, **kwargs: Any) -> None:
        kwargs.setdefault("usage", _USAGE)
        kwargs.setdefault("formatter_class", argparse.HelpFormatter)
        super().__init__(dataclass_types, allow_abbrev=False, **kwargs)
        self._hints: dict[str, Any] = {}
        self._fields: dict[str, dataclasses.Field[Any]] = {}
        for dataclass_type in self.dataclass_types:
            self._hints.update(get_type_hints(dataclass_type))
            self._fields |= {f.name: f for f in dataclasses.fields(dataclass_type) if f.init}
        for action in self._actions:
            if action.dest in self._fields:
                self._take_text(action)
        # Groups named by our dataclasses come first in --help, Transformers' long list last.
        self._action_groups.sort(key=lambda group: group is self._optionals)
        self.add_argument(
            "--config",
            nargs="+",
            action="extend",
            metavar="FILE",
            default=argparse.SUPPRESS,
            help="YAML files of `field: value` lines, a later one over an earlier one; mappings "
            "such as model are merged key by key",
        )

    def parse_recipe(
        self,
        argv: list[str] | None = None,
        default_config: Path | None = None,
        *,
        under: Mapping[str, Any] | None = None,
        over: Mapping[str, Any] | None = None,
    ) -> tuple[Any, ...]:
        """Read the YAML files, then the command line over them.

        Args:
            argv: the command line without the program's name; None means `sys.argv[1:]`.
            default_config: the YAML file that is read when no `--config` is given. Its `model` is
                left out where the command line names a saved one, which has fields of its own.
            under: further values, over those of the files and under the command line.
            over: values over everything, cast already.

        Returns:
            One instance of each dataclass, in the order given to the parser.

        Raises:
            ValueError: unknown flag or key, wrong type, missing or unreadable file; in one line,
                with the nearest known name.
            SystemExit: after `--help`.
        """
        self.epilog = _epilog(default_config)
        given = self._parse_command_line(sys.argv[1:] if argv is None else argv)
        files = [Path(name) for name in given.pop("config", [])]
        if not files and default_config is not None:
            files = [default_config]
        values: dict[str, Any] = {}
        for file in files:
            _merge(values, self._read_file(file))
        if files == [default_config] and given.get("model_name_or_path") is not None:
            values.pop("model", None)
        _merge(values, self._cast(dict(under or {}), "settings"))
        _merge(values, given)
        return self._build({**values, **(over or {})})

    def check(self, values: Mapping[str, Any], source: str) -> None:
        """Raise ValueError for an unknown field or a value of another type.

        Args:
            values: as YAML gives them.
            source: where they stand, for the message.
        """
        self._cast(dict(values), source)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has to say, instead of printing the whole usage and exiting."""
        raise ValueError(message)

    def _always_done(self, values: dict[str, Any]) -> dict[str, bool]:
        names = [name for name in _ALWAYS if name in self._fields]
        refused = next((name for name in names if values.get(name) is False), None)
        if refused is not None:
            raise ValueError(
                f"{refused}: got False, and a recipe always trains and evaluates; leave it out, or "
                "give true (the run.yaml of an earlier version may have it: delete that line)"
            )
        return dict.fromkeys(names, True)

    def _take_text(self, action: argparse.Action) -> None:
        """Leave casting and defaults to this class: argparse only says which text was given."""
        action.default, action.required = argparse.SUPPRESS, False
        if action.nargs == 0:
            return  # --no_field
        default = _written_default(self._fields[action.dest])
        # argparse fills in %, and HfArgumentParser has doubled those of the field's own help.
        action.help = f"{action.help} (default: {default.replace('%', '%%')})"
        hint = self._hints[action.dest]
        if action.nargs == "?" and not is_switch(hint):
            # The flag may stand alone, as --fsdp: then `fsdp: true` is its YAML form.
            hint = self._hints[action.dest] = Union[hint, bool]  # noqa: UP007
        action.type = action.choices = None
        action.metavar = placeholder(hint)
        if accepts_list(hint):
            action.nargs = "+"
        elif is_switch(hint):
            action.nargs, action.const = "?", True

    def _parse_command_line(self, argv: list[str]) -> dict[str, Any]:
        namespace, unknown = self.parse_known_args(argv)
        if unknown:
            word = next((word for word in unknown if word.startswith("-")), unknown[0])
            if not word.startswith("-"):
                raise ValueError(f"unexpected argument {word!r}; values follow a --field")
            flag = word.partition("=")[0]
            flags = [option for action in self._actions for option in action.option_strings]
            raise ValueError(f"unknown argument {flag!r}{did_you_mean(flag, flags)}")
        given = vars(namespace)
        for name in given.keys() & self._fields.keys():
            if not isinstance(given[name], bool):
                given[name] = _named(f"--{name}", cast_text, given[name], self._hints[name])
        return given

    def _read_file(self, file: Path) -> dict[str, Any]:
        return self._cast(read_yaml_mapping(file), str(file))

    def _cast(self, values: dict[str, Any], source: str) -> dict[str, Any]:
        for name, value in values.items():
            if name not in self._fields:
                hint = did_you_mean(name, self._fields)
                raise ValueError(f"{source}: unknown key {name!r}{hint}")
            values[name] = _named(f"{source}: {name}", cast_value, value, self._hints[name])
        return values

    def _build(self, values: dict[str, Any]) -> tuple[Any, ...]:
        for name, field in self._fields.items():
            if _default(field) is dataclasses.MISSING and name not in values:
                raise ValueError(f"--{name} is required")
        always = self._always_done(values)
        try:
            return self.parse_dict({**values, **always})
        except ImportError:
            raise
        except Exception as error:
            # Transformers checks some fields by using them, and does not always say which it means.
            message = str(error)
            if not (isinstance(error, ValueError) and any(name in message for name in values)):
                message = f"{', '.join(self._to_blame(values, error))}: {message}"
            raise ValueError(message) from error

    def _to_blame(self, values: dict[str, Any], error: Exception) -> list[str]:
        """The fields without which there would be no such error; all of them if that is none."""
        found = []
        for name in values:
            try:
                self.parse_dict({k: v for k, v in values.items() if k != name})
            except Exception as other:
                if str(other) == str(error):
                    continue
            found.append(name)
        return found or list(values)


def _named(name: str, cast: Any, value: Any, hint: Any) -> Any:
    try:
        return cast(value, hint)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _merge(values: dict[str, Any], later: dict[str, Any]) -> None:
    """Put later values over earlier ones; two mappings are merged key by key."""
    for name, value in later.items():
        earlier = values.get(name)
        if isinstance(earlier, dict) and isinstance(value, dict):
            value = {**earlier, **value}
        values[name] = value


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _written_default(field: "dataclasses.Field[Any]") -> str:
    """A default as it would be written in YAML."""
    default = _default(field)
    if default is dataclasses.MISSING:
        return "required"
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    return str(getattr(default, "value", default)) or "''"


def _epilog(default_config: Path | None) -> str:
    text = (
        "Names may be written with - for _. `null` means none. A mapping is written as JSON on the "
        "command line. A bare --debug shows the traceback of a mistake."
    )
    return f"Without --config, {default_config} is read. {text}" if default_config else text
