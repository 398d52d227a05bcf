"""What a program has forked ends with it, also when it is killed."""

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hf_linear_attn.training.program import run_program
from tests import processes


def forks_and_dies(argv):
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    Path("child").write_text(str(child.pid))
    os.kill(os.getpid(), signal.SIGKILL)


def run():
    run_program(forks_and_dies, [])


def lives(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # ended, and not yet buried


@pytest.mark.skipif(sys.platform != "linux", reason="a signal at the parent's end is Linux's")
@pytest.mark.slow
def test_a_worker_ends_when_its_program_is_killed(tmp_path):
    code = processes.exit_code(run, folder=tmp_path)
    assert code == -signal.SIGKILL
    child = int((tmp_path / "child").read_text())
    end = time.monotonic() + 30
    while lives(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert not lives(child)
