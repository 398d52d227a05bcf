"""How many examples the property tests take together; that each takes its own, `conftest` sees."""

import importlib
from pathlib import Path

from tests.properties.examples import ASKED, FACTOR


def test_there_are_enough_examples():
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.properties.{file.stem}")
    assert sum(ASKED.values()) >= 2_000 * max(FACTOR, 1)
