"""What a training step of each model costs, kept with the settings that it was measured with."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_linear_attn.training.atomic_files import write_atomically
from hf_linear_attn.training.saved_files import DamagedFileError, read_json


@dataclass(frozen=True)
class KeptTimes:
    """What was measured once.

    Attributes:
        seconds: CPU seconds of a step, by model.
        settings: recipe arguments of a run, by model.
    """

    seconds: Mapping[str, float]
    settings: Mapping[str, Any]


def read_times(file: Path) -> KeptTimes | None:
    """What `write_times` wrote; None where nothing is kept.

    Raises:
        ValueError: the file holds something else.
    """
    if not file.is_file():
        return None
    try:
        content = read_json(file)
    except DamagedFileError as error:
        raise _refusal(str(error)) from error
    seconds, settings = content.get("seconds"), content.get("settings")
    if not isinstance(seconds, dict) or not all(map(_is_time, seconds.values())):
        raise _refusal(f"{file} has no seconds of a step by model")
    if not isinstance(settings, dict) or settings.keys() != seconds.keys():
        raise _refusal(f"{file} has no settings of the models whose steps it has")
    return KeptTimes(seconds, settings)


def write_times(file: Path, times: KeptTimes) -> None:
    """Keep what was measured; the file's folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"seconds": times.seconds, "settings": times.settings}
    write_atomically(file, json.dumps(content, indent=1) + "\n")


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf


def _refusal(fault: str) -> ValueError:
    return ValueError(f"{fault}; put back what this program has written there, or delete it")
