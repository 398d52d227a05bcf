"""The suite's own judgement: what counts as explained, and when an entry is stale."""

import unittest
from fnmatch import fnmatchcase

import pytest

from tests.suite.not_applicable import NOT_APPLICABLE, Entry
from tests.suite.outcomes import PASSED, Outcome, judge, run_test, unmet, unused
from tests.suite.skips import LACKS, SKIPS, Skip
from tests.suite.subjects import FAMILIES, subjects

ENTRY = Entry("test_a", ("*ForCausalLM",), "no such thing", "there is none")
SKIP = Skip(("test_b", "test_z"), "needs a GPU", "none is here", ("*ForCausalLM",))


class XForCausalLM(unittest.TestCase):
    __test__ = False

    def test_a(self):
        for i in range(2):
            with self.subTest(i):
                raise ValueError(f"no such thing as {i}")

    def test_b(self):
        with self.subTest("part"):
            self.skipTest("needs a GPU")

    def test_c(self):
        pass


@pytest.mark.parametrize(
    ("test", "entries", "status", "detail"),
    [
        ("test_a", [ENTRY], "not applicable", "there is none"),
        ("test_a", [], "failed", "no such thing as 1"),
        ("test_a", [ENTRY._replace(says="thing as 1")], "failed", "no such thing as 0"),
        ("test_b", [], "skipped", "none is here"),
        ("test_b", [ENTRY._replace(test="test_b")], "failed", "stale entry"),
        ("test_c", [], "passed", ""),
        ("test_c", [ENTRY._replace(test="test_c")], "failed", "stale entry"),
    ],
)
def test_every_outcome(test, entries, status, detail):
    outcome = run_test(XForCausalLM(test), entries, [SKIP])
    assert (outcome.model, outcome.test, outcome.status) == ("XForCausalLM", test, status)
    assert detail in outcome.detail


@pytest.mark.parametrize(
    "change", [{"tests": ("test_z",)}, {"says": "two GPUs"}, {"classes": ("*ForMaskedLM",)}]
)
def test_a_skip_that_nobody_has_looked_at_is_a_failure(change):
    """By another test, for another reason, of another class."""
    outcome = run_test(XForCausalLM("test_b"), [], [SKIP._replace(**change)])
    assert outcome.status == "failed"
    assert "skipped by Transformers (needs a GPU), and" in outcome.detail


def test_one_skip_that_is_known_does_not_hide_another():
    skips = ["needs a GPU", "needs two GPUs"]
    assert judge(Outcome("X", "test_b", PASSED), [], skips, [], [SKIP]).status == "failed"


def test_a_known_skip_that_nothing_meets_is_stale():
    found = [run_test(XForCausalLM(test), [ENTRY], [SKIP]) for test in ("test_a", "test_b")]
    gone = SKIP._replace(reason="of no test")
    assert unused([SKIP, gone], found) == [gone]


def test_an_entry_that_meets_no_test_is_stale():
    assert ENTRY.meets("XForCausalLM", "test_a")
    assert not ENTRY.meets("XForCausalLM", "test_ab")
    assert not ENTRY.meets("XForMaskedLM", "test_a")
    gone = ENTRY._replace(test="test_gone")
    assert unmet([ENTRY, gone], [run_test(XForCausalLM("test_a"), [], [])]) == [gone]


def test_errors_are_never_lost_behind_a_skip():
    passed = Outcome("X", "test_b", PASSED)
    assert judge(passed, ["ValueError: y"], ["needs a GPU"], [], [SKIP]).status == "failed"


def test_every_entry_names_tests_classes_words_and_a_reason():
    found = [subject for family in FAMILIES for subject in subjects(family)]
    names = [subject.name for subject in found]
    assert len({subject.model_class for subject in found}) == 35
    for entry in (*NOT_APPLICABLE, *LACKS, *SKIPS):
        assert entry.says
        assert entry.reason
        for pattern in entry.classes:
            assert any(fnmatchcase(name, pattern) for name in names)
    reasons = [skip.reason for skip in (*LACKS, *SKIPS)]
    assert len(set(reasons)) == len(reasons)
