"""Iterative pseudo-inverse on a Triton kernel, with its gradient."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from hf_linear_attn.kernels.launching import on_device
from hf_linear_attn.kernels.newton_schulz import newton_schulz, newton_schulz_backward

LARGEST = 64
"""rows of a matrix that fit one program"""


def pseudo_inverse(A: Tensor, iterations: int) -> Tensor:
    """As `hf_linear_attn.ops.nystrom_attention.pseudo_inverse`, for fp32 and m ≤ `LARGEST`.

    Args:
        A: (…, m, m) fp32 with entries ≥ 0.
        iterations: number of steps.
    """
    columns = A.sum(-2).amax(-1)[..., None, None]
    rows = A.sum(-1).amax(-1)[..., None, None]
    return _NewtonSchulz.apply(A, A.mT / (columns * rows), iterations)


class _NewtonSchulz(torch.autograd.Function):
    """The steps alone: A, Z_0 -> Z."""

    @staticmethod
    def forward(ctx, A: Tensor, Z: Tensor, iterations: int) -> Tensor:
        A, result = A.contiguous(), Z.clone(memory_format=torch.contiguous_format)
        m = A.shape[-1]
        save = any(ctx.needs_input_grad)
        steps = A.new_empty(iterations, *A.shape) if save else None
        with on_device(A.device):
            newton_schulz[(A.numel() // (m * m),)](
                A, result, steps, M=m, BM=_block(m), ITERATIONS=iterations, SAVE=save, num_warps=8
            )
        ctx.save_for_backward(A, steps)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        A, steps = ctx.saved_tensors
        m = A.shape[-1]
        grad = grad.clone(memory_format=torch.contiguous_format)
        grad_a = torch.empty_like(A)
        with on_device(A.device):
            newton_schulz_backward[(A.numel() // (m * m),)](
                A, steps, grad, grad_a, M=m, BM=_block(m), ITERATIONS=steps.shape[0], num_warps=8
            )
        return grad_a, grad, None


def _block(m: int) -> int:
    return max(16, triton.next_power_of_2(m))
