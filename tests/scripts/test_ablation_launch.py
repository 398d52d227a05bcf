"""Runs that a program starts: one start at a time, seconds kept, none outlives the program."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.test_children import lives

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from ablation.launch import alone_in, cpu_seconds, launch  # noqa: E402

# Starts a run that never ends by itself, as a driver does.
DRIVER = """
import sys
from pathlib import Path
from ablation.launch import launch
run = "import os, pathlib, time; pathlib.Path('child').write_text(str(os.getpid())); time.sleep(99)"
launch([sys.executable, "-c", run], {}, Path("log"), Path("seconds"))
"""


def waits_for(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.skipif(sys.platform != "linux", reason="a signal at the parent's end is Linux's")
@pytest.mark.slow
def test_a_run_ends_when_its_program_is_killed_and_its_time_is_unknown(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=tmp_path, env=environment)
    number = tmp_path / "child"
    assert waits_for(lambda: number.exists() and number.read_text())
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    child = int(number.read_text())
    assert waits_for(lambda: not lives(child))
    assert cpu_seconds(tmp_path / "seconds") is None


def test_starts_are_given_their_environment_and_their_seconds_are_added(tmp_path):
    work = "import os, time\nwhile time.process_time() < 0.3: pass\nprint(os.environ['SAID'])"
    log, seconds = tmp_path / "log", tmp_path / "seconds"
    for _ in range(2):
        assert launch([sys.executable, "-c", work], {"SAID": "a word"}, log, seconds) == 0
    assert log.read_text() == "a word\n"
    assert cpu_seconds(seconds) >= 0.6
    assert launch([sys.executable, "-c", "raise SystemExit(3)"], {}, log, seconds) == 3
    assert len(seconds.read_text().split()) == 3
    assert cpu_seconds(tmp_path / "none") is None


@pytest.mark.parametrize("content", [b"1.5\nmany\n", b"\xff\xfe"])
def test_seconds_that_are_damaged_are_named(tmp_path, content):
    file = tmp_path / "seed-1.cpu_seconds"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"seed-1\.cpu_seconds is damaged: .*; delete it, and the"):
        cpu_seconds(file)
    assert launch([sys.executable, "-c", ""], {}, tmp_path / "log", file) == 0
    with pytest.raises(ValueError, match=r"is damaged"):
        cpu_seconds(file)


def test_the_seconds_of_a_start_that_was_interrupted_are_known(tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(["run"], {}, tmp_path / "log", tmp_path / "seconds")
    assert cpu_seconds(tmp_path / "seconds") == 0


def test_a_second_start_in_a_folder_is_refused(tmp_path):
    with (
        alone_in(tmp_path),
        pytest.raises(ValueError, match="another start is at work in"),
        alone_in(tmp_path),
    ):
        pytest.fail("two starts")
    with alone_in(tmp_path):
        pass
