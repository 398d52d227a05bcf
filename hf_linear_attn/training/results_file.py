"""What a finished run has measured, from its file: of the kind that it should be, or named."""

import reprlib
from pathlib import Path
from typing import Any

from hf_linear_attn.training.saved_files import DamagedFileError, read_json

RESULTS_FILE = "all_results.json"
_KINDS = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


class ResultsFile:
    """The file of results in the output folder of a run.

    Attributes:
        file: its path.
        content: as it was read; `get` looks at kinds.

    Args:
        folder: of a finished run.

    Raises:
        ValueError: the file is missing or unreadable, or holds no mapping.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / RESULTS_FILE
        try:
            self.content = read_json(self.file)
        except DamagedFileError as error:
            raise self.refusal(f"{error}") from error

    def get(self, name: str, kind: type) -> Any:
        """A value.

        Args:
            name: of the value.
            kind: float, int, str, bool or list; a whole number is a float, too.

        Raises:
            ValueError: it is missing, or of another kind.
        """
        found = self.content.get(name)
        if name not in self.content:
            raise self.refusal(f"{self.file} has no {name!r}")
        if kind is float and type(found) is int and abs(found) < 2**1023:
            return float(found)
        if type(found) is not kind:
            raise self.wrong(name, _KINDS.get(kind, "a list"))
        return found

    def wrong(self, name: str, expected: str) -> ValueError:
        """What is to be raised for a value that is not what it should be."""
        shown = reprlib.repr(self.content.get(name))
        return self.refusal(f"{self.file}: {name} is {shown}, expected {expected}")

    def refusal(self, fault: str) -> ValueError:
        """What is to be raised, with what to do."""
        return ValueError(
            f"{fault}; put the file back as the run has written it, or delete the folder "
            f"{self.file.parent} to run this again"
        )
