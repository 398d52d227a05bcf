"""docs/public-reports.md: every reported fault has tests, and every test it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "public-reports.md").read_text(encoding="utf-8")
NUMBERED = {
    f"B{n:02}"
    for n in (
        1, 2, 4, 5, 6, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 23, 24, 25, 26, 28, 30, 31, 32, 33,
        34, 36, 38, 39, 41, 42, 44, 45, 46, 47, 49,
    )
}  # fmt: skip
NAMED = {
    "boundaries", "lengths-by-layer", "mask-and-window", "long-tail", "axis-order", "tf32",
    "second-gpu", "redraws", "empty-shards", "nested-dtype", "masked-pads", "left-padding",
    "empty-document", "attention-weights", "steps-of-one-cost", "retrieval", "pathfinder", "image",
}  # fmt: skip
WITHOUT_TESTS = {"B10", "redraws"}
MARKERS = ("gpu", "kernels", "slow")


def rows():
    """(case, reported, kind of fault, held by) of each row of both tables."""
    for line in PAGE.splitlines():
        if line.startswith("|") and not line.startswith(("| Case", "| ---")):
            yield tuple(cell.strip() for cell in line.strip("|").split(" | "))


ROWS = list(rows())
CASES = {row[0]: row for row in ROWS}
TESTS = [
    (case, *test)
    for case, *_, held in ROWS
    for test in re.findall(r"`([\w/]+\.py)::(\w+)`(?: \(([\w, ]+)\))?", held)
]


def marks(tree, function):
    """Names of the markers of a test: its own, its module's."""
    nodes = [node for d in function.decorator_list for node in ast.walk(d)]
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            nodes += ast.walk(statement.value)
    whole = [d for d in nodes if isinstance(d, ast.Attribute)]
    # Of one set of parameters alone: the others run by default.
    apart = {
        id(node)
        for d in function.decorator_list
        if "parametrize" in ast.unparse(d)
        for node in ast.walk(d)
    }
    return {d.attr for d in whole if d.attr in MARKERS and id(d) not in apart}


@cache
def markers_by_test(file):
    """The markers of each test of a file, by its name."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {f.name: marks(tree, f) for f in functions if f.name.startswith("test_")}


def test_every_case_is_there_once_with_its_thread_and_its_kind():
    assert [row[0] for row in ROWS] == list(CASES)
    assert set(CASES) == NUMBERED | NAMED
    for case, reported, kind, held in ROWS:
        links = re.findall(r"\[[\w-]+ (\d+)\]\(https://github\.com/[\w./-]+/(\d+)\)", reported)
        assert links, case
        assert all(shown == linked for shown, linked in links), case
        assert kind.endswith("."), case
        assert held, case


def test_a_case_has_tests_or_a_reason_why_there_is_none():
    tested = {case for case, *_ in TESTS}
    assert tested == set(CASES) - WITHOUT_TESTS
    for case in WITHOUT_TESTS:
        assert re.match(r"(Excepted|Does not apply): \w+", CASES[case][3]), case
    assert sum(row[3].count("::") for row in ROWS) == len(TESTS)


@pytest.mark.parametrize("case", [case for case in CASES if case not in WITHOUT_TESTS])
def test_the_tests_of_a_case_exist_and_run_where_it_says(case):
    for _, file, name, needs in (test for test in TESTS if test[0] == case):
        assert (ROOT / file).is_file(), file
        assert name in markers_by_test(file), f"{file}::{name}"
        assert set(needs.split(", ")) - {""} == markers_by_test(file)[name], f"{file}::{name}"


def test_a_number_in_a_test_s_name_is_one_of_the_page():
    for file in (ROOT / "tests").rglob("test_*.py"):
        for number in re.findall(r"^def test_b(\d\d)_", file.read_text("utf-8"), re.MULTILINE):
            assert f"B{number}" in CASES, file
    for case in NUMBERED - WITHOUT_TESTS:
        names = [name for of, _, name, _ in TESTS if of == case]
        assert any(name.startswith(f"test_{case.lower()}_") for name in names), case
