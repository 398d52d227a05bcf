"""Functions in fresh processes, one or two that know each other, without paying for imports again.

A fork server imports everything once; each process is a fork of it, with nothing of the test's own
state. Two processes meet in a file, not at a port, and get the environment that `accelerate launch`
would give them for one of the recipes' own files.
"""

import json
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import deprecations

ROOT = Path(__file__).parents[1]
PRELOAD = ["tests.recipes.preloaded"]
TIMEOUT = 120
GRACE = 10  # seconds for the others when one has failed


def context() -> Any:
    """The fork server's context; the first process of it waits for the imports."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOAD)
    return made


def launcher_environment(engine: str) -> dict[str, str]:
    """What `accelerate launch` adds to the environment for `recipes/accelerate/<engine>.yaml`."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    file = ROOT / "recipes" / "accelerate" / f"{engine}.yaml"
    args = launch_command_parser().parse_args(["--config_file", str(file), "program.py"])
    args, defaults, _ = _validate_launch_command(args)
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
        args.deepspeed_config_file = str(ROOT / args.deepspeed_config_file)
        _, found = prepare_deepspeed_cmd_env(args)
    else:
        found = prepare_multi_gpu_env(args)
    return {k: v for k, v in found.items() if k.startswith(("ACCELERATE_", "FSDP_"))}


def run(
    function: Callable[..., Any],
    *args: Any,
    folder: Path,
    processes: int = 1,
    engine: str | None = None,
) -> list[Any]:
    """Call a function in fresh processes; what each returned, as JSON gives it back.

    Args:
        function: of a module; its arguments are pickled.
        folder: where the processes meet and work.
        processes: how many, each with its own rank.
        engine: the launcher's file, or None.
    """
    meeting, started = _start(function, args, folder, processes, engine)
    results = [meeting / f"{rank}.json" for rank in range(processes)]
    faults = [file.read_text() for file in meeting.glob("*.error")]
    assert all(file.is_file() for file in results), "\n".join(faults) or started
    return [json.loads(file.read_text()) for file in results]


def exit_code(function: Callable[..., Any], *args: Any, folder: Path) -> int:
    """The code with which one process ends that calls a function; that of a signal is negative."""
    _, [process] = _start(function, args, folder, 1, None)
    return process.exitcode


def _start(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    folder: Path,
    processes: int,
    engine: str | None,
) -> tuple[Path, list[Any]]:
    """Start the processes and wait for their end; the folder of what they left, and they."""
    meeting, started = begin(function, args, folder, processes, engine)
    try:
        _wait(started)
    finally:
        for process in started:
            process.kill()
            process.join()
    return meeting, started


def begin(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    folder: Path,
    processes: int = 1,
    engine: str | None = None,
) -> tuple[Path, list[Any]]:
    """Start processes as `run` does, and leave them to the caller.

    Returns:
        The folder of what they leave: `<rank>.log`, printed so far, `<rank>.json`, returned, or
        `<rank>.error`; and the processes.
    """
    environment = {} if engine is None else launcher_environment(engine)
    folder.mkdir(parents=True, exist_ok=True)
    meeting = folder / f"meeting-{len(list(folder.glob('meeting-*')))}"
    meeting.mkdir()
    started = [
        context().Process(
            target=_child, args=(function, args, folder, meeting, rank, processes, environment)
        )
        for rank in range(processes)
    ]
    for process in started:
        process.start()
    return meeting, started


def end() -> None:
    """End the fork server, if there is one, without the farewells of its libraries."""
    server = multiprocessing.forkserver._forkserver._forkserver_pid
    if server is not None:
        os.kill(server, signal.SIGKILL)


def _wait(started: list[Any]) -> None:
    """Until all have ended; one that fails leaves the others waiting for it."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end and any(process.is_alive() for process in started):
        multiprocessing.connection.wait([p.sentinel for p in started if p.is_alive()], timeout=1)
        if any(process.exitcode for process in started):
            end = min(end, time.monotonic() + GRACE)


def _child(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    folder: Path,
    meeting: Path,
    rank: int,
    processes: int,
    environment: dict[str, str],
) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    _redirect(meeting / f"{rank}.log")
    deprecations.watch()
    try:
        if processes > 1:
            _meet(meeting, rank, processes)
        found = function(*args)
        deprecations.fail()
        (meeting / f"{rank}.json").write_text(json.dumps(found))
    except SystemExit as left:
        (meeting / f"{rank}.error").write_text(f"rank {rank}: left with {left.code}")
        _leave(left.code)
    except BaseException:
        (meeting / f"{rank}.error").write_text(f"rank {rank}: {traceback.format_exc()}")
        _leave(1)
    _leave(0)


def _meet(meeting: Path, rank: int, processes: int) -> None:
    import torch

    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if "ACCELERATE_USE_FSDP" in os.environ:
        _fsdp_on_cpu()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=processes
    )


def _fsdp_on_cpu() -> None:
    """Let accelerate take gloo processes for GPUs, the only devices for which it begins FSDP."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    original = PartialState.__init__

    def patched(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = patched


def _redirect(log: Path) -> None:
    """What a process prints goes to a file."""
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(opened, 1)
    os.dup2(opened, 2)


def _leave(code: int) -> None:
    # The threads of gloo now and then abort the ordinary end of a process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
