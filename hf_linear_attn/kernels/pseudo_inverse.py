"""Iterative pseudo-inverse on a Triton kernel, with its gradient."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.kernels.call import launch_options
from hf_linear_attn.kernels.configurations import (
    MATRIX_SIZES,
    Configuration,
    configuration,
    matrix_size,
    target_of,
)
from hf_linear_attn.kernels.launching import on_device
from hf_linear_attn.kernels.newton_schulz import newton_schulz, newton_schulz_backward
from hf_linear_attn.kernels.support import why_no_inverse

LARGEST = MATRIX_SIZES[-1]
"""rows of a matrix that fit one program"""


def pseudo_inverse(A: Tensor, iterations: int) -> Tensor:
    """As `hf_linear_attn.ops.nystrom_attention.pseudo_inverse`, differentiable as often.

    The first gradient is a kernel's; where a graph of it is asked for (`create_graph`), it is
    computed in PyTorch.

    Args:
        A: (…, m, m) fp32 with entries ≥ 0; m ≤ `LARGEST`.
        iterations: number of steps.

    Raises:
        ValueError: `support.why_no_inverse` knows why.
    """
    reason = why_no_inverse(A)
    if reason is not None:
        raise ValueError(f"no kernel inverts these matrices: {reason}. Use the PyTorch op.")
    columns = A.sum(-2).amax(-1)[..., None, None]
    rows = A.sum(-1).amax(-1)[..., None, None]
    return _NewtonSchulz.apply(A, A.mT / (columns * rows), iterations)


class _NewtonSchulz(torch.autograd.Function):
    """The steps alone: A, Z_0 -> Z."""

    @staticmethod
    def forward(ctx, A: Tensor, Z: Tensor, iterations: int) -> Tensor:
        matrices = A.contiguous()
        save = any(ctx.needs_input_grad)
        zs = A.new_empty(1 + iterations if save else 2, *A.shape)
        zs[0] = Z
        _launch(newton_schulz, matrices, zs=zs, work=A.new_empty(3, *A.shape), SAVE=save,
                ITERATIONS=iterations)  # fmt: skip
        # The arguments and not their copies: a second derivative goes through them.
        ctx.save_for_backward(A, Z, zs if save else None)
        # Not a view, which would hold on to the others.
        return zs[iterations if save else iterations % 2].clone()

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        A, Z, zs = ctx.saved_tensors
        iterations = zs.shape[0] - 1
        if torch.is_grad_enabled():
            return *_differentiable(A, Z, iterations, grad), None
        grads = zs.new_empty(2, *A.shape)
        grads[0] = grad
        grad_a = torch.zeros_like(A, memory_format=torch.contiguous_format)
        _launch(newton_schulz_backward, A.contiguous(), zs=zs, grads=grads, grad_a=grad_a,
                work=zs.new_empty(6, *A.shape), ITERATIONS=iterations)  # fmt: skip
        return grad_a, grads[iterations % 2], None


def _launch(kernel: Any, matrices: Tensor, **arguments: Any) -> None:
    m = matrices.shape[-1]
    found = _configuration(kernel.__name__, matrices)
    with on_device(matrices.device):
        kernel[(matrices.numel() // (m * m),)](
            a=matrices, **arguments, M=m, BM=found.features, BK=found.columns,
            **launch_options(found, matrices.device),
        )  # fmt: skip


def _configuration(kernel: str, A: Tensor) -> Configuration:
    size, target = matrix_size(A.shape[-1]), target_of(A.device)
    assert size is not None
    assert target is not None
    found = configuration(kernel, A.dtype, size, target)
    assert found is not None
    return found


def _differentiable(A: Tensor, Z: Tensor, iterations: int, grad: Tensor) -> tuple[Tensor, ...]:
    """∂L/∂A and ∂L/∂Z_0 of the steps, with a graph."""
    # Z_0 was made of A; of two views, neither is the other's.
    a, z = A.view_as(A), Z.view_as(Z)
    result = z
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    with torch.autocast(A.device.type, enabled=False):
        for _ in range(iterations):
            AZ = a @ result
            result = 0.25 * result @ (13 * eye - AZ @ (15 * eye - AZ @ (7 * eye - AZ)))
        return torch.autograd.grad(result, (a, z), grad, create_graph=True)
