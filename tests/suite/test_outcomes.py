"""The suite's own judgement: what counts as explained, and when an entry is stale."""

import unittest
from fnmatch import fnmatchcase

import pytest

from tests.suite.not_applicable import NOT_APPLICABLE, Entry
from tests.suite.outcomes import judge, run_test, unmet
from tests.suite.subjects import FAMILIES, subjects

ENTRY = Entry("test_a", ("*ForCausalLM",), "no such thing", "there is none")


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
        ("test_b", [], "skipped", "needs a GPU"),
        ("test_b", [ENTRY], "failed", "stale entry"),
        ("test_c", [], "passed", ""),
        ("test_c", [ENTRY], "failed", "stale entry"),
    ],
)
def test_every_outcome(test, entries, status, detail):
    outcome = run_test(XForCausalLM(test), entries)
    assert (outcome.model, outcome.test, outcome.status) == ("XForCausalLM", test, status)
    assert detail in outcome.detail


def test_an_entry_that_meets_no_test_is_stale():
    assert ENTRY.meets("XForCausalLM", "test_a")
    assert not ENTRY.meets("XForCausalLM", "test_ab")
    assert not ENTRY.meets("XForMaskedLM", "test_a")
    gone = ENTRY._replace(test="test_gone")
    assert unmet([ENTRY, gone], [run_test(XForCausalLM("test_a"), [])]) == [gone]


def test_errors_are_never_lost_behind_a_skip():
    assert judge("X", "test_a", ["ValueError: y"], ["needs a GPU"], []).status == "failed"


def test_every_entry_names_tests_classes_words_and_a_reason():
    found = [subject for family in FAMILIES for subject in subjects(family)]
    names = [subject.name for subject in found]
    assert len({subject.model_class for subject in found}) == 35
    for entry in NOT_APPLICABLE:
        assert entry.says
        assert entry.reason
        for pattern in entry.classes:
            assert any(fnmatchcase(name, pattern) for name in names)
