"""The check of a GPU machine: what it touches, what it refuses, what it takes for success.

The steps themselves are stood in for: they are pytest and the benchmark program.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_linear_attn.training.program import run_program

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "device_check.sh"
# Leaves what a step leaves, and says how it was called.
PYTHON = """#!/usr/bin/env bash
echo "$@" >> "$CALLS"
while [ $# -gt 0 ]; do
    case "$1" in --junitxml | --json | --markdown | --plot) echo new > "$2";; esac
    shift
done
exit "${CODE:-0}"
"""
WRITTEN = {
    *("steps.tsv", "kernels.log", "kernels.xml", "tests.log", "tests.xml"),
    *("benchmark.log", "benchmark.json", "benchmark.md", "benchmark.png"),
}


def load_report():
    sys.path.insert(0, str(ROOT / "scripts"))
    file = ROOT / "scripts" / "device_report.py"
    spec = importlib.util.spec_from_file_location("device_report", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REPORT = load_report()


@pytest.fixture
def check(tmp_path):
    """Run the script from a folder of the caller's, with a Python that does nothing."""
    python, calls = tmp_path / "bin" / "python", tmp_path / "calls"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / "caller").mkdir()

    def run(*arguments, **environment):
        return subprocess.run(
            ["bash", str(SCRIPT), *arguments], cwd=tmp_path / "caller", text=True,
            capture_output=True, timeout=60,
            env={**os.environ, "PYTHON": "../bin/python", "CALLS": str(calls), **environment},
        )  # fmt: skip

    return run


@pytest.fixture
def caller(tmp_path, check):
    return tmp_path / "caller"


def test_a_relative_folder_is_the_callers(check, caller, tmp_path):
    found = check("--dry-run", "results")
    assert found.returncode == 0, found.stderr
    assert {file.name for file in (caller / "results").iterdir()} == WRITTEN
    steps = [line.split("\t")[:2] for line in (caller / "results/steps.tsv").open()]
    assert steps == [["kernels", "0"], ["tests", "0"], ["benchmark", "0"]]
    report = (tmp_path / "calls").read_text().splitlines()[-1]
    assert report == f"scripts/device_report.py {caller}/results --dry-run"


def test_only_its_own_files_are_removed(check, caller):
    """A folder of an earlier check in which somebody keeps files of theirs."""
    folder = caller / "results"
    assert check("--dry-run", "results").returncode == 0
    (folder / "device_check.json").write_text("old")
    theirs = ["notes.json", "other.log", "mine.xml", "table.tsv", "all.png", "a.md"]
    for name in theirs:
        (folder / name).write_text("theirs")
    assert check("results", "--dry-run", CODE="3").returncode == 3
    assert {name: (folder / name).read_text() for name in theirs} == dict.fromkeys(theirs, "theirs")
    assert {file.name for file in folder.iterdir()} == WRITTEN | set(theirs)
    steps = (folder / "steps.tsv").read_text().splitlines()
    assert [line.split("\t")[1] for line in steps] == ["3", "3", "3"]


def test_a_folder_with_somebody_elses_results_is_refused(check, caller, tmp_path):
    (caller / "benchmark.json").write_text("theirs")
    found = check("--dry-run", ".")
    assert found.returncode == 2
    assert found.stderr.startswith("error: ")
    assert "benchmark.json is there, and no steps.tsv" in found.stderr
    assert [file.name for file in caller.iterdir()] == ["benchmark.json"]
    assert (caller / "benchmark.json").read_text() == "theirs"
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_runs_nothing(word, check, caller, tmp_path):
    found = check(word)
    assert found.returncode == 0
    assert found.stderr == ""
    for words in ("eight minutes", "FOLDER", "--dry-run", "device_check.json", "steps.tsv"):
        assert words in found.stdout
    assert list(caller.iterdir()) == []
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry"], "unknown option --dry; there are --dry-run and --help"),
        (["results", "--quick"], "unknown option --quick"),
        (["one", "two"], "one FOLDER, not both one and two"),
        ([""], "FOLDER is empty"),
    ],
)
def test_mistakes_are_one_line(arguments, message, check, caller, tmp_path):
    found = check(*arguments)
    assert found.returncode == 2
    assert found.stderr.startswith(f"error: {message}")
    assert found.stderr.count("\n") == 1
    assert list(caller.iterdir()) == []
    assert not (tmp_path / "calls").exists()


def exit_code(folder, codes, *arguments):
    """Of the report on steps that ended with these codes."""
    lines = [f"{name}\t{code}\t1\t100\n" for name, code in codes.items()]
    (folder / "steps.tsv").write_text("".join(lines))
    try:
        run_program(REPORT.main, [str(folder), *arguments])
    except SystemExit as stop:
        return stop.code
    return 0


def test_no_tests_are_a_success_in_a_dry_run_only(tmp_path, capsys):
    nothing = {"kernels": 0, "tests": 5, "benchmark": 0}
    assert exit_code(tmp_path, nothing) == 1
    assert "no tests" in capsys.readouterr().out
    assert exit_code(tmp_path, nothing, "--dry-run") == 0
    well = dict.fromkeys(nothing, 0)
    assert exit_code(tmp_path, well) == 0
    for code in (1, 2, 124):
        assert exit_code(tmp_path, {**well, "tests": code}, "--dry-run") == 1


def test_the_report_reads_the_tests_of_its_steps(tmp_path):
    """Files of the same kind that are somebody else's count for nothing."""
    (tmp_path / "tests.xml").write_text(
        '<testsuites><testsuite><testcase classname="a" name="b"/><testcase classname="a" name="c">'
        '<skipped message="why"/></testcase></testsuite></testsuites>'
    )
    (tmp_path / "mine.xml").write_text("<a><testcase classname='x' name='y'/></a>")
    assert exit_code(tmp_path, {"kernels": 0, "tests": 0}) == 0
    content = json.loads((tmp_path / "device_check.json").read_text())
    assert content["tests"] == {"passed": 1, "failed": {}, "skipped": {"a::c": "why"}}
