"""What a program has forked ends with it, also when it is killed or interrupted."""

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


def forks_and_is_interrupted(argv):
    """As a terminal does it: every process of the group has the signal."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also behind a shell's `&`
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=waits, args=(ready,))
    child.start()
    ready.wait()
    Path("child").write_text(str(child.pid))
    try:
        os.killpg(0, signal.SIGINT)
        time.sleep(60)
    finally:
        time.sleep(0.5)


def waits(ready):
    ready.set()
    time.sleep(0.2)  # Ctrl-C comes meanwhile
    sys.stderr.write("what fails in a worker because its program ends\n")
    time.sleep(60)


def run(main):
    run_program(main, [])


def lives(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # ended, and not yet buried


def ends(child: int) -> bool:
    end = time.monotonic() + 30
    while lives(child) and time.monotonic() < end:
        time.sleep(0.01)
    return not lives(child)


@pytest.mark.skipif(sys.platform != "linux", reason="a signal at the parent's end is Linux's")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "code", "said"),
    [(forks_and_dies, -signal.SIGKILL, []), (forks_and_is_interrupted, 130, ["interrupted"])],
)
def test_a_worker_ends_with_its_program_and_says_nothing(main, code, said, tmp_path):
    assert processes.exit_code(run, main, folder=tmp_path) == code
    assert ends(int((tmp_path / "child").read_text()))
    lines = (tmp_path / "meeting-0" / "0.log").read_text().splitlines()
    assert [line.partition(";")[0] for line in lines] == said
