"""The programs as a person starts them, each in a fork of a process that has imported all of it.

The fork runs the file of the program as `__main__`, with its command line, its own standard streams
and its own exit code; only the seconds of importing are left out.
"""

import os
import resource
import runpy
import signal
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.case import Case
from tests.processes import ROOT, context

CPU_SECONDS = 20
WAIT_SECONDS = 600
ADDRESS_SPACE = 24 << 30  # bytes: a size out of all bounds fails here and not on the machine
SCRIPTS = ("convert", "export", "ablate", "benchmark")
RECIPES = ("mlm", "clm", "glue", "lra")
PROGRAMS = {
    **{name: ROOT / "recipes" / f"{name}.py" for name in RECIPES},
    **{name: ROOT / "scripts" / f"{name}.py" for name in SCRIPTS},
}


@dataclass(frozen=True)
class Answer:
    """What a program leaves behind: its exit code and its streams."""

    code: int
    out: str
    err: str


def command_line(case: Case) -> list[str]:
    """The arguments behind the program's name."""
    if case.program in RECIPES:
        return ["--config", "config.yaml", *case.argv]
    return list(case.argv)


class Server:
    """A process that has imported everything and runs cases in forks of itself."""

    def __init__(self) -> None:
        self._pipe, other = context().Pipe()
        self._process = context().Process(target=_serve, args=(other,), daemon=False)
        self._process.start()

    def run(self, case: Case, folder: Path, streams: Path) -> Answer:
        """Run the program of a case in a folder; its streams are kept in another one."""
        streams.mkdir(parents=True, exist_ok=True)
        program = str(PROGRAMS[case.program])
        self._pipe.send((program, command_line(case), str(folder), str(streams)))
        code = self._pipe.recv()
        out, err = ((streams / name).read_text(errors="replace") for name in ("out", "err"))
        return Answer(code, out, err)

    def close(self) -> None:
        """End the process."""
        self._pipe.send(None)
        self._process.join(10)
        self._process.kill()


def _serve(pipe: Any) -> None:
    _import_all()
    while (job := pipe.recv()) is not None:
        child = os.fork()
        if not child:
            _start(*job)
        _, status = os.waitpid(child, 0)
        pipe.send(os.waitstatus_to_exitcode(status))


def _import_all() -> None:
    """What the programs import and the fork server has not."""
    import gc

    sys.path.insert(0, str(ROOT / "scripts"))
    for path in PROGRAMS.values():
        runpy.run_path(str(path), run_name="imported")
    gc.collect()
    gc.freeze()


def _start(program: str, argv: list[str], folder: str, streams: str) -> None:
    """In the fork: become the program."""
    code = 1
    try:
        _limit()
        _redirect(streams)
        os.chdir(folder)
        _own_cache(Path(streams))
        sys.argv = [os.path.relpath(program), *argv]
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(WAIT_SECONDS)  # a program that waits for ever uses no time


def _redirect(streams: str) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name, number in (("out", 1), ("err", 2)):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        os.dup2(os.open(f"{streams}/{name}", flags), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def _own_cache(streams: Path) -> None:
    import datasets

    datasets.config.HF_DATASETS_CACHE = streams / "cache"
    os.environ["HF_DATASETS_CACHE"] = str(streams / "cache")


@contextmanager
def serving() -> Any:
    """A server for the time of a block."""
    server = Server()
    try:
        yield server
    finally:
        server.close()
