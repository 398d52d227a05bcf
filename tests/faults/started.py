"""A recipe in a process of its own, which can be looked at and killed at any moment.

The process leads a group of its own, so that its workers can be killed with it. SIGUSR1 asks it
what it is doing; it answers as soon as Python runs again.
"""

import os
import signal
import time
from pathlib import Path
from types import FrameType

from tests import processes
from tests.faults.phases import STARTING, phase_of
from tests.faults.trained import Trained

LONGEST = 300  # seconds of a start that nobody ends
_ANSWERS = "phase-{}.txt"


class Started:
    """A started recipe.

    Args:
        trained: the run.
        folder: where it runs; the cache of `datasets` is the folder `cache` in it.
        more: further arguments of its command line.
        cache: another folder for the cache.
        rank: which of several processes is looked at, waited for and killed.
    """

    def __init__(
        self,
        trained: Trained,
        folder: Path,
        *more: str,
        cache: Path | None = None,
        rank: int = 0,
    ) -> None:
        for answers in folder.glob(_ANSWERS.format("*")):
            answers.unlink()
        self._answers = folder / _ANSWERS.format(rank)
        arguments = (trained.recipe, [*trained.argv, *more], cache or folder / "cache")
        self._meeting, self._all = processes.begin(
            run_recipe, arguments, folder, trained.processes, trained.engine
        )
        self._rank, self._process = rank, self._all[rank]
        self.begun, self.seconds = time.monotonic(), 0.0

    def wait(self, seconds: float = LONGEST) -> bool:
        """Whether it ended within these seconds."""
        self._process.join(max(seconds, 0))
        return not self._process.is_alive()

    def finish(self) -> int:
        """Its exit code, when it has ended by itself; it is killed when it never does."""
        ended = self.wait()
        self.seconds = time.monotonic() - self.begun
        self.kill(group=True)
        assert ended, f"the run did not end within {LONGEST} s:\n{self.said()}"
        return self._process.exitcode

    def others_end(self, seconds: float) -> list[int | None]:
        """The exit codes of the other processes; None of one that did not end in time."""
        others = [process for process in self._all if process is not self._process]
        end = time.monotonic() + seconds
        for process in others:
            process.join(max(end - time.monotonic(), 0))
        codes = [process.exitcode for process in others]
        for process in others:
            process.kill()
            process.join()
        return codes

    def phase(self, patience: float = 0.03) -> str:
        """What it is doing; its last answer where there is no new one in time."""
        answers = self._answers_so_far()
        if not answers or not self._process.is_alive():
            return STARTING  # a signal would end it before it listens
        os.kill(self._process.pid, signal.SIGUSR1)
        end = time.monotonic() + patience
        while time.monotonic() < end and len(self._answers_so_far()) == len(answers):
            time.sleep(0.001)
        return self._answers_so_far()[-1]

    def _answers_so_far(self) -> list[str]:
        text = self._answers.read_text() if self._answers.is_file() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def kill(self, *, group: bool) -> bool:
        """SIGKILL to it, or to it and all its workers; whether it was alive."""
        alive = self._process.is_alive()
        try:
            if group:
                os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it did not get as far as to lead a group, or all of it has ended
        self._process.kill()
        self._process.join()
        return alive and self._process.exitcode == -signal.SIGKILL

    def workers_end(self, seconds: float = 10) -> bool:
        """Whether all processes of its group end within these seconds, when it was killed."""
        end = time.monotonic() + seconds
        while self._group():
            if time.monotonic() > end:
                self.kill(group=True)
                return False
            time.sleep(0.01)
        return True

    def _group(self) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                _, _, rest = entry.read_text().rpartition(")")
            except OSError:
                continue  # ended meanwhile
            state, _, group = rest.split()[:3]
            if int(group) == self._process.pid and state != "Z":
                found.append(int(entry.parent.name))
        return found

    def said(self, rank: int | None = None) -> str:
        """What it, or another of several processes, has printed so far on both streams."""
        rank = self._rank if rank is None else rank
        files = (self._meeting / f"{rank}.log", self._meeting / f"{rank}.error")
        said = [file.read_text(errors="replace") for file in files if file.is_file()]
        # A program that leaves with a code has said why; anything else is its traceback.
        return "\n".join(text for text in said if "left with" not in text[:30])


def run_recipe(recipe: str, argv: list[str], cache: Path) -> None:
    """In the process: listen, then do what the program of the recipe does."""
    os.setpgrp()  # not a session, which would be scheduled by itself
    answers = os.open(_ANSWERS.format(os.environ.get("RANK", "0")), os.O_WRONLY | os.O_CREAT)
    process = os.getpid()

    def answer(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            os.write(answers, f"{phase_of(frame)}\n".encode())

    signal.signal(signal.SIGUSR1, answer)
    os.write(answers, f"{STARTING}\n".encode())

    import datasets

    from hf_linear_attn.training.program import run_program
    from tests.recipes.mlm_recipe import load_recipe

    datasets.config.HF_DATASETS_CACHE = cache
    run_program(load_recipe(recipe).main, argv)
