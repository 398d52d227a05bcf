"""Wrong inputs: one line, exit code 2, nothing written; and the page that tells users of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.case import Case
from tests.hostile.cases import CASES
from tests.hostile.checks import fault, refusal_fault, snapshot
from tests.hostile.given import prepare
from tests.hostile.programs import PROGRAMS, ROOT, Answer, command_line, serving
from tests.hostile.store import fill_store
from tests.hostile.table import PAGE, page

# One process has imported everything; the tests that ask it stay together.
pytestmark = pytest.mark.xdist_group("hostile")

BY_NAME = {case.name: case for case in CASES}
FRESH = ["rows-nul", "convert-pickle"]
LAUNCHED = ["yaml-python-exec", "line-lra-depth-huge"]


@pytest.fixture(scope="module")
def server():
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    fill_store(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_input_is_one_line_and_changes_nothing(case, server, store, tmp_path):
    folder = tmp_path / "here"
    prepare(folder, case, store)
    answer, found = fault(server, case, folder)
    assert found is None, f"{found}\n{answer.out[-1000:]}\n{answer.err[-3000:]}"


@pytest.mark.slow
def test_debug_shows_the_traceback(server, store, tmp_path):
    wrong = BY_NAME["line-rate-nan"]
    case = Case("debug", wrong.program, "", "", (*wrong.argv, "--debug"))
    prepare(tmp_path / "here", case, store)
    answer = server.run(case, tmp_path / "here", tmp_path / "streams")
    assert answer.code == 1
    assert "Traceback" in answer.err
    assert answer.err.splitlines()[-1].startswith("ValueError: learning_rate: got nan")


def _start(command, case, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_DATASETS_CACHE": str(folder / "c")}
    words = [*command, str(PROGRAMS[case.program]), *command_line(case)]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", FRESH)
def test_a_program_of_its_own_answers_likewise(name, store, tmp_path):
    case = BY_NAME[name]
    prepare(tmp_path / "here", case, store)
    before = snapshot(tmp_path / "here")
    answer = _start([sys.executable], case, tmp_path / "here")
    assert refusal_fault(answer, case.says) is None, answer.err[-3000:]
    assert snapshot(tmp_path / "here") == before


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHED)
def test_under_the_launcher_the_line_is_the_last_of_the_program(name, store, tmp_path):
    case = BY_NAME[name]
    prepare(tmp_path / "here", case, store)
    before = snapshot(tmp_path / "here")
    accelerate = str(Path(sys.executable).with_name("accelerate"))
    answer = _start([accelerate, "launch"], case, tmp_path / "here")
    assert answer.code != 0
    # The launcher adds a traceback of its own call behind it.
    own, _, _ = answer.err.partition("Traceback (most recent call last)")
    assert refusal_fault(Answer(2, answer.out, own), case.says) is None, answer.err[-3000:]
    assert snapshot(tmp_path / "here") == before


def test_names_are_unique_and_every_answer_is_told():
    assert len(BY_NAME) == len(CASES)
    assert not [case.name for case in CASES if not case.says]
    assert sum(not case.works for case in CASES) >= 200
    assert {*FRESH, *LAUNCHED} <= BY_NAME.keys()
    # No command line of a real process holds one.
    assert not any("\0" in word for case in CASES for word in case.argv)


def test_the_page_is_that_of_the_cases():
    """`python -m tests.hostile --write` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()
