"""Every wrong input, by what it is about."""

from tests.hostile.case import Case
from tests.hostile.cases import (
    checkpoints,
    command_line,
    configs,
    long_range,
    places,
    rows,
    scripts,
    texts,
    tokenizers,
    yaml_files,
)

GROUPS: dict[str, list[Case]] = {
    "Files of settings": yaml_files.CASES,
    "The command line": command_line.CASES,
    "Fields of the model": configs.CASES,
    "Text to pretrain on": texts.CASES,
    "Labelled rows": rows.CASES,
    "Files of Long Range Arena": long_range.CASES,
    "Saved models": checkpoints.CASES,
    "Tokenizers": tokenizers.CASES,
    "Where a run is to live": places.CASES,
    "Converting": [case for case in scripts.CASES if case.program == "convert"],
    "Exporting": [case for case in scripts.CASES if case.program == "export"],
    "Comparing and measuring": [
        case for case in scripts.CASES if case.program in ("ablate", "benchmark")
    ],
}
CASES = [case for group in GROUPS.values() for case in group]
