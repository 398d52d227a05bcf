"""What a call takes from the allocator."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.garbage import no_collection

# The profiler would announce each of its starts and ends on stderr.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Allocated:
    """Bytes beyond what was there before a call.

    Attributes:
        peak: the most at any time during the call.
        kept: when it had returned, what it returns included.
    """

    peak: int
    kept: int


def allocated_by(call: Callable[[], object], device: torch.device) -> Allocated:
    """Bytes a call takes; it is run once before, for what is set up once.

    On the CPU every allocation is counted by the profiler, on a GPU by PyTorch's allocator.
    """
    with no_collection():
        call()
        if device.type == "cuda":
            return _on_gpu(call)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            kept = call()
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    # Its events have more fields than their stub says.
    events: list[Any] = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now = peak = 0
    for _, size in changes:
        now += size
        peak = max(peak, now)
    del kept
    return Allocated(peak, now)


def _on_gpu(call: Callable[[], object]) -> Allocated:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = call()
    torch.cuda.synchronize()
    found = Allocated(
        torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
    )
    del kept
    return found
