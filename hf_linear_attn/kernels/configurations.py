"""What there are kernels for, and how they are launched.

The table holds what the ahead-of-time gate (`make kernels-full`) has let pass: no spilled register,
no stack, shared memory within the device's. What is not in it has no kernel, and is said so.
"""

import os
from typing import NamedTuple

import torch

HEAD_SIZES = (32, 64, 128, 256)
"""a head size is served by the next of these"""

MATRIX_SIZES = (16, 32, 64)
"""rows of a matrix to invert; likewise"""

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Configuration(NamedTuple):
    """Tiles and launch options of one kernel; a tile that it does not have is 1."""

    chunk: int
    """C, tokens of a chunk"""
    features: int
    """BK, features of a tile"""
    columns: int
    """BV, value columns of a tile"""
    warps: int
    stages: int

    def options(self, target: str) -> dict[str, int]:
        """Launch options on a target."""
        found = {"num_warps": self.warps, "num_stages": self.stages}
        if target.startswith("sm_"):
            # Left to itself, ptxas spills a little where that lets one block more run at a time.
            found["maxnreg"] = 255
        return found


TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")

CHUNKED = ("state_scan", "output", "grad_rows", "grad_q", "grad_k", "grad_v")
"""kernels over chunks of tokens; those of a call share the chunk, a state is saved for each"""
LINEAR_ATTENTION = (*CHUNKED, "split_scan", "decode_step")
"""all that a call of linear attention may need"""
PSEUDO_INVERSE = ("newton_schulz", "newton_schulz_backward")
_OF_FP32 = ("split_scan", *PSEUDO_INVERSE)
"""kernels that see fp32 numbers alone, whatever the dtype of a call"""


def _chunked(kernel: str, dtype: torch.dtype, size: int, target: str) -> Configuration:
    # 256 threads: AMD's warps have 64 of them.
    warps = 4 if target.startswith("gfx") else 8
    if dtype == torch.bfloat16:
        found = Configuration(64, 32, 32, warps, 2)
    # Other products are sums in registers, without tensor cores: chunks of 64 spill there, so do
    # wide tiles of what is summed over, and second stages.
    elif kernel in ("grad_q", "grad_k"):
        found = Configuration(32, 32, 16, warps, 1)
    else:
        found = Configuration(32, 16, 32, warps, 1)
    return found._replace(**_otherwise(kernel, dtype == torch.bfloat16, size, target))


def _otherwise(kernel: str, bfloat16: bool, size: int, target: str) -> dict[str, int]:
    """What has to differ, lest ptxas spill."""
    if target.startswith("sm_") and not bfloat16 and kernel not in ("state_scan", "grad_rows"):
        return {"warps": 4}
    if target == "sm_80" and bfloat16 and kernel == "grad_v":
        return {"warps": 4}
    if target == "sm_100" and bfloat16 and size >= 128:
        return {
            "output": {"features": 16},
            "grad_v": {"features": 16},
            "grad_q": {"stages": 1},
        }.get(kernel, {})
    return {}


Key = tuple[str, torch.dtype, int, str]
"""kernel, dtype, head size or rows of a matrix, target"""


def _table() -> dict[Key, tuple[Configuration, ...]]:
    table: dict[Key, tuple[Configuration, ...]] = {}
    for target in TARGETS:
        for size in HEAD_SIZES:
            for dtype in DTYPES:
                for kernel in CHUNKED:
                    key = kernel, dtype, size, target
                    table[key] = (_chunked(*key),)
                # The state's columns: 16 of 128 features, twice with angles, are 32 registers.
                table["decode_step", dtype, size, target] = (Configuration(1, size, 16, 4, 1),)
            table["split_scan", torch.float32, size, target] = (Configuration(1, 1, 1024, 4, 1),)
        for size in MATRIX_SIZES:
            for kernel in PSEUDO_INVERSE:
                found = Configuration(1, min(size, 32), 16, 4, 1)
                table[kernel, torch.float32, size, target] = (found,)
    return table


TABLE = _table()
"""`Key` -> at most four configurations, the first is used"""


def head_size(D: int, Dv: int) -> int | None:
    """The entry of the table for a head size, or None where there is none."""
    return next((size for size in HEAD_SIZES if max(D, Dv) <= size), None)


def matrix_size(m: int) -> int | None:
    """The entry of the table for matrices of m rows, or None where there is none."""
    return next((size for size in MATRIX_SIZES if m <= size), None)


def target_of(device: torch.device) -> str | None:
    """The name of a device in the table, or None where it has none.

    Triton's interpreter runs on the CPU; there it uses the configurations of sm_90.
    """
    if device.type == "cpu" and _interprets():
        return "sm_90"
    if device.type != "cuda":
        return None
    if torch.version.hip is not None:
        name = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
        return name if name in TARGETS else None
    major, minor = torch.cuda.get_device_capability(device)
    names = {(8, 0): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return names.get((major, minor))


def _interprets() -> bool:
    """Does Triton's interpreter run here? Set after Triton's import the variable breaks kernels."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return False
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    return isinstance(tl.sum, InterpretedFunction)


def configuration(kernel: str, dtype: torch.dtype, size: int, target: str) -> Configuration | None:
    """How a kernel is launched, or None where there is no kernel."""
    if kernel in _OF_FP32:
        dtype = torch.float32
    found = TABLE.get((kernel, dtype, size, target))
    return found[0] if found else None
