"""What there are kernels for, and how they are launched.

The table holds what the ahead-of-time gate (`make kernels-full`) has let pass: no spilled register,
no stack, shared memory within the device's. What is not in it has no kernel, and is said so.
"""

import os
from typing import NamedTuple

import torch

HEAD_SIZES = (32, 64, 128, 256)
"""a head size is served by the next of these"""

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Configuration(NamedTuple):
    """Tiles and launch options of one kernel."""

    chunk: int
    """C, tokens of a chunk"""
    features: int
    """BK, features of a tile"""
    columns: int
    """BV, value columns of a tile"""
    warps: int
    stages: int


KERNELS = ("state_scan", "output", "grad_rows", "grad_q", "grad_k", "grad_v")
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")


def _configuration(kernel: str, dtype: torch.dtype, target: str) -> Configuration:
    """All kernels of a call share the chunk: a state is saved for each."""
    # fp32 products are sums in registers, without tensor cores: chunks of 64 spill there.
    chunk = 64 if dtype == torch.bfloat16 else 32
    # 256 threads: AMD's warps have 64 of them.
    warps = 4 if target.startswith("gfx") else 8
    if dtype == torch.bfloat16:
        return Configuration(chunk, 32, 32, warps, 2)
    # The tiles that are summed over are narrow, and there is one stage: ptxas spills otherwise.
    features = 32 if kernel in ("grad_q", "grad_k") else 16
    columns = 16 if kernel in ("grad_q", "grad_k") else 32
    return Configuration(chunk, features, columns, warps, 1)


TABLE: dict[tuple[str, torch.dtype, int, str], tuple[Configuration, ...]] = {
    (kernel, dtype, size, target): (_configuration(kernel, dtype, target),)
    for kernel in KERNELS
    for dtype in DTYPES
    for size in HEAD_SIZES
    for target in TARGETS
}
"""(kernel, dtype, head size, target) -> at most four configurations, the first is used"""


def head_size(D: int, Dv: int) -> int | None:
    """The entry of the table for a head size, or None where there is none."""
    return next((size for size in HEAD_SIZES if max(D, Dv) <= size), None)


def target_of(device: torch.device) -> str | None:
    """The name of a device in the table, or None where it has none.

    Triton's interpreter runs on the CPU; there it uses the configurations of sm_90.
    """
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return "sm_90"
    if device.type != "cuda":
        return None
    if torch.version.hip is not None:
        name = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
        return name if name in TARGETS else None
    major, minor = torch.cuda.get_device_capability(device)
    names = {(8, 0): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return names.get((major, minor))


def configuration(kernel: str, dtype: torch.dtype, size: int, target: str) -> Configuration | None:
    """How a kernel is launched, or None where there is no kernel."""
    found = TABLE.get((kernel, dtype, size, target))
    return found[0] if found else None
