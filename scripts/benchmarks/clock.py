"""How long a call takes: CPU time of this process, or the time between two events on a GPU."""

import time
from collections.abc import Callable
from typing import Protocol

import torch

Call = Callable[[], object]


class Clock(Protocol):
    """What the rounds need of a clock."""

    name: str

    def seconds(self, call: Call, repeats: int) -> float:
        """Mean seconds of one call over `repeats` calls in a row."""
        ...


class CpuClock:
    """CPU time of the process, user and system: other programs' share of the cores is not in it."""

    name = "time.process_time"

    def seconds(self, call: Call, repeats: int) -> float:
        """See `Clock.seconds`."""
        start = time.process_time()
        for _ in range(repeats):
            call()
        return (time.process_time() - start) / repeats


class CudaClock:
    """Time between two events on the GPU's current stream; gaps between launches are in it."""

    name = "CUDA events"

    def seconds(self, call: Call, repeats: int) -> float:
        """See `Clock.seconds`."""
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(repeats):
            call()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) / 1000 / repeats


def clock_of(device: torch.device) -> Clock:
    """The clock of a device, "cpu" or "cuda"."""
    return CudaClock() if device.type == "cuda" else CpuClock()
