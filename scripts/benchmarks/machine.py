"""The machine: its name, its matrix-product rate and copy bandwidth, the versions in use."""

import os
import platform
from collections.abc import Callable
from typing import Any

import torch
import transformers

import hf_linear_attn
from benchmarks.bench import Bench
from hf_linear_attn.backend import ENVIRONMENT_VARIABLE
from hf_linear_attn.training.hardware import device_name

GEMM, COPY = "gemm", "copy"
_COPY_BYTES = 2**28


def gemm_size(device: torch.device) -> int:
    """Rows and columns of the matrices; a GPU reaches its rate on larger ones only."""
    return 8192 if device.type == "cuda" else 2048


def gemm_flops(device: torch.device) -> float:
    """Multiplications and additions of the matrix product."""
    return 2.0 * gemm_size(device) ** 3


def gemm_call(device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    """A product of two square matrices into a third."""
    size = gemm_size(device)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _copy_call(device: torch.device) -> Callable[[], object]:
    source = torch.ones(_COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def describe(bench: Bench) -> dict[str, Any]:
    """The conditions of a run: what it runs on, with what, and how fast that is today."""
    settings = bench.settings
    device, dtype = settings.device, settings.dtype
    load = [round(x, 2) for x in os.getloadavg()]
    timings = bench.race({GEMM: gemm_call(device, dtype), COPY: _copy_call(device)})
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "batch": settings.batch,
        "heads": settings.heads,
        "head_dim": settings.head_dim,
        "rounds": settings.rounds,
        "seed": settings.seed,
        "clock": bench.clock.name,
        "gemm_size": gemm_size(device),
        "gemm_gflops": gemm_flops(device) / timings.of(GEMM).median / 1e9,
        "copy_gbytes_per_second": 2 * _COPY_BYTES / timings.of(COPY).median / 1e9,
        "load_average_at_start": load,
        "backend": os.environ.get(ENVIRONMENT_VARIABLE) or "automatic",
        "mmap_threshold": os.environ.get("MALLOC_MMAP_THRESHOLD_"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "hf_linear_attn": hf_linear_attn.__version__,
    }
