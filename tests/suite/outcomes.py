"""What became of each test, and whether the lists of what does not apply are still right."""

import re
import traceback
import unittest
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.suite.not_applicable import Entry
from tests.suite.skips import Skip

PASSED, FAILED, SKIPPED, NOT_APPLICABLE = "passed", "failed", "skipped", "not applicable"


class Outcome(NamedTuple):
    """What became of one test of one model class."""

    model: str
    test: str
    status: str
    detail: str = ""
    """the errors, or the reason"""


class Recorder(unittest.TestResult):
    """Keeps the errors and the skips of one test, those of its parts among them."""

    def __init__(self):
        super().__init__()
        self.errors_found: list[str] = []
        self.skips_found: list[str] = []

    def _keep(self, error: Any) -> None:
        self.errors_found.append("".join(traceback.format_exception(*error)))

    def addError(self, test: Any, err: Any) -> None:
        """See unittest."""
        self._keep(err)

    def addFailure(self, test: Any, err: Any) -> None:
        """See unittest."""
        self._keep(err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        """See unittest."""
        if err is not None:
            self._keep(err)

    def addSkip(self, test: Any, reason: str) -> None:
        """See unittest."""
        self.skips_found.append(reason)


def run_test(test: unittest.TestCase, entries: Iterable[Entry], allowed: Iterable[Skip]) -> Outcome:
    """Run one test and judge it.

    Args:
        test: of a case whose name is the model class's.
        entries: tests that do not apply.
        allowed: skips that are known.
    """
    recorder = Recorder()
    test.run(recorder)
    model, name = type(test).__name__, test.id().rsplit(".", 1)[-1]
    skips = [_without_name(reason, model) for reason in recorder.skips_found]
    entries = [entry for entry in entries if entry.meets(model, name)]
    allowed = [skip for skip in allowed if skip.meets(model, name)]
    return judge(Outcome(model, name, PASSED), recorder.errors_found, skips, entries, allowed)


def _without_name(reason: str, model: str) -> str:
    """A reason that is one for all model classes."""
    name = re.escape(model.split()[0])
    return re.sub(rf"<class '[\w.]+{name}'>|\b{name}\b", "this model", reason)


def judge(
    passed: Outcome, errors: list[str], skips: list[str], entries: list[Entry], allowed: list[Skip]
) -> Outcome:
    """What to call it.

    Args:
        passed: what it is if nothing was found.
        errors: tracebacks of the test and its parts.
        skips: reasons of the same.
        entries, allowed: those of the lists that are about it.
    """
    explained = [e for e in entries if errors and all(e.says in error for error in errors)]
    if explained:
        return passed._replace(status=NOT_APPLICABLE, detail=explained[0].reason)
    if errors:
        stale = [f"The entry says {entry.says!r}, which is not in this error:" for entry in entries]
        return passed._replace(status=FAILED, detail="\n".join([*stale, *errors]))
    if entries:
        what = f"is skipped by Transformers ({skips[0]})" if skips else "passes"
        stale = f"stale entry in not_applicable.py: the test {what}."
        return passed._replace(status=FAILED, detail=stale)
    reasons = []
    for words in skips:
        known = [skip.reason for skip in allowed if skip.says in words]
        if not known:
            new = f"skipped by Transformers ({words}), and tests/suite/skips.py does not say why."
            return passed._replace(status=FAILED, detail=new)
        reasons += known
    return passed._replace(status=SKIPPED, detail=reasons[0]) if reasons else passed


def unmet(entries: Iterable[Entry], outcomes: Sequence[Outcome]) -> list[Entry]:
    """Entries that are about no test that was run."""
    return [e for e in entries if not any(e.meets(o.model, o.test) for o in outcomes)]


def unused(skips: Iterable[Skip], outcomes: Sequence[Outcome]) -> list[Skip]:
    """Known skips by which no test was skipped."""
    found = {o.detail for o in outcomes if o.status == SKIPPED}
    return [skip for skip in skips if skip.reason not in found]
