"""Run the tests of one subject."""

import os
from fnmatch import fnmatchcase

from tests.suite.cases import build_case, tests_of
from tests.suite.field import load_field
from tests.suite.not_applicable import NOT_APPLICABLE
from tests.suite.outcomes import Outcome, run_test
from tests.suite.skips import LACKS, SKIPS
from tests.suite.source import fetch_tests
from tests.suite.subjects import enter_names, subjects


def be_silent() -> None:
    """Let nothing of what the tests of this process print be seen."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def run_subject(family: str, index: int, match: str) -> list[Outcome]:
    """Run the tests of one subject.

    Args:
        family: a word of FAMILIES.
        index: of the subject in its family.
        match: pattern of the tests' names.
    """
    enter_names()
    case = build_case(load_field(fetch_tests()), subjects(family)[index])
    outcomes = []
    for test in tests_of(case):
        name = test.id().rsplit(".", 1)[-1]
        if fnmatchcase(name, match):
            outcomes.append(run_test(test, NOT_APPLICABLE, (*LACKS, *SKIPS)))
    return outcomes
