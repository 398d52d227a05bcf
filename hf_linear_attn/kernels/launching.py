"""What a launch depends on beside the tensors."""

from contextlib import AbstractContextManager, nullcontext

import torch
import triton.language as tl

# Programs a multiprocessor is to have before a scan is no longer split.
_PROGRAMS_A_PROCESSOR = 2
MOST_SPLITS = 32


def on_device(device: torch.device) -> AbstractContextManager:
    """Launches go to the current device, which need not be the tensors'."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def operand_type(dtype: torch.dtype) -> tl.dtype:
    """Type of the operands of matrix products.

    fp16 inputs are multiplied in fp32: sums over a sequence leave fp16's range, bf16 would lose
    three of their bits.
    """
    return tl.bfloat16 if dtype == torch.bfloat16 else tl.float32


def splits(chunks: int, programs: int, device: torch.device) -> int:
    """Into how many parts a scan is cut, so that the device has enough programs.

    Args:
        chunks: length of the scan.
        programs: of an uncut scan.
        device: where it runs.
    """
    if device.type != "cuda":
        return 1
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = -(-_PROGRAMS_A_PROCESSOR * processors // programs)
    # A part of fewer than two chunks costs a second reading and saves nothing.
    return max(1, min(wanted, chunks // 2, MOST_SPLITS))
