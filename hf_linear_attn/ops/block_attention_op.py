"""Block attention as an operator that exporters take whole.

The number of blocks follows from the length, and a graph of its parts would take the one it was
traced with, or whether it is 1, for a fact.
"""

from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.ops.block_attention import compute
from hf_linear_attn.ops.operands import accumulation_dtype


@torch.library.custom_op("hf_linear_attn::block_attention", mutates_args=())
def block_attention_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    key_mask: Tensor | None,
    segments: Tensor | None,
    state: Tensor | None,
    causal: bool,
    block_size: int,
    weights: str,
    aligned: bool,
) -> tuple[Tensor, Tensor]:
    """Output and final state (an empty tensor if not causal); arguments as in `block_attention`."""
    out, final = compute(
        q, k, v, positions, key_mask, segments, state, causal, block_size,
        weights,  # pyright: ignore[reportArgumentType]
        aligned,
    )  # fmt: skip
    return out.contiguous(), out.new_empty(0) if final is None else final.contiguous()


@block_attention_op.register_fake
def _(q, k, v, positions, key_mask, segments, state, causal, block_size, weights, aligned):
    dtype, width = accumulation_dtype(q, k, v), k.shape[3] + v.shape[3] + 1
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=dtype)
    final = (*k.shape[:2], block_size, width) if causal else (0,)
    return out, q.new_empty(final, dtype=dtype)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.settings = inputs[7:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:7])


def _differentiate(ctx: Any, grad_out: Tensor | None, grad_final: Tensor | None):
    """The gradients, with the forward pass run again: nothing was kept of it."""
    q, k, v, positions, key_mask, segments, state = ctx.saved_tensors
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v, state) if x is not None]
        q, k, v = leaves[:3]
        state = leaves[3] if state is not None else None
        outputs = compute(q, k, v, positions, key_mask, segments, state, *ctx.settings)
        given = [
            (x, grad)
            for x, grad in zip(outputs, (grad_out, grad_final), strict=True)
            if x is not None and grad is not None
        ]
        results, upstream = zip(*given, strict=True)
        grads = torch.autograd.grad(results, leaves, upstream, materialize_grads=True)
    dstate = grads[3] if state is not None else None
    return *grads[:3], None, None, None, dstate, None, None, None, None


block_attention_op.register_autograd(_differentiate, setup_context=_keep)
