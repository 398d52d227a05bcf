"""Linear attention as an operator that compilers and exporters take whole.

A graph that saw the loop over chunks would hold a copy of it for each chunk, for one length. Here
the loop stays inside the operator, so one graph serves every length. The backend is resolved when
the operator runs: a compiled graph follows `use_backend` and the environment like an eager call.

So a graph must be right for every backend. Outputs, normalisers and rests have one layout on all of
them; states have not. A graph keeps states where PyTorch is the only backend, on the CPU, and in
the layout of its passes. Elsewhere the backward pass computes them again, on whichever backend
runs then.
"""

import os
from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.linear_attention_types import Inputs, Kept, Settings
from hf_linear_attn.namespace import NAMESPACE
from hf_linear_attn.ops.dispatch import backend_of, run_backward, run_forward
from hf_linear_attn.ops.operands import accumulation_dtype

# Triton reads this when it is imported; then kernels run on the CPU, too.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def keeps_states(device: torch.device) -> bool:
    """May a graph on a device keep states for its backward pass?"""
    return device.type == "cpu" and not _INTERPRETED


def refuse_second_derivatives() -> None:
    """Refuse a backward pass whose gradients are to be differentiated again.

    Asked at the first derivative: autograd itself would take gradients that do not depend on a
    gradient (of a sum, say) for constants, and give second derivatives of 0 without a word.

    Raises:
        RuntimeError: create_graph=True.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "linear_attention has first derivatives only; create_graph=True (second derivatives, "
            "gradient penalties, torch.autograd.functional.hessian) asks for more."
        )


# An operator returns a fixed number of tensors: what a call does not have is an empty one.


@torch.library.custom_op(f"{NAMESPACE}::linear_attention", mutates_args=())
def linear_attention_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor | None,
    q_angles: Tensor | None,
    k_angles: Tensor | None,
    key_mask: Tensor | None,
    segments: Tensor | None,
    feature_map: str,
    causal: bool,
    normalize: bool,
    chunk_size: int,
    eps: float,
    save_states: bool,
    backend: str | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output, final state, and for the backward pass: normaliser, rest (`Kept`), states.

    Args:
        q, k, v, …, eps: as in `linear_attention`, checked.
        save_states: keep the states before each chunk, (chunks, B·G, E, F); see `keeps_states`.
        backend: as in `linear_attention`.

    Raises:
        ValueError: the backend cannot run the call.
        RuntimeError: states are to be kept, and a kernel to run, which lays them out otherwise.
    """
    x = Inputs(q, k, v, state, q_angles, k_angles, key_mask, segments)
    settings = Settings(feature_map, causal, normalize, chunk_size, eps)
    backend = backend_of(x, settings, backend)
    if save_states and backend == "triton":
        raise RuntimeError(
            "this graph was made to keep the states of the PyTorch backend and cannot run on "
            "'triton': compile it again with recompute_states=True, or, for Triton's interpreter, "
            "in a process that starts with TRITON_INTERPRET=1."
        )
    kept, final = run_forward(x, settings, save_states, backend)
    states = None
    if kept.states is not None:
        states = q.new_zeros(_states_shape(x, settings), dtype=accumulation_dtype(q, k, v))
        for slot, found in zip(states, kept.states, strict=True):
            if found is not None:
                slot.copy_(found)
    others = (final, kept.total, kept.rest, states)
    final, total, rest, states = (q.new_empty(0) if t is None else t for t in others)
    return kept.out, final, total, rest, states


@linear_attention_op.register_fake
def _(
    q, k, v, state, q_angles, k_angles, key_mask, segments, feature_map, causal, normalize,
    chunk_size, eps, save_states, backend,
):  # fmt: skip
    x = Inputs(q, k, v, state, q_angles, k_angles, key_mask, segments)
    settings = Settings(feature_map, causal, normalize, chunk_size, eps)
    dtype = accumulation_dtype(q, k, v)
    (B, H, N, _), G, Dv = q.shape, k.shape[1], v.shape[-1]
    rounds = normalize and v.dtype.itemsize == 2
    shape = _states_shape(x, settings)
    return (
        v.new_empty(B, H, N, Dv),
        q.new_empty(B, G, shape[3], shape[2], dtype=dtype) if causal else q.new_empty(0),
        q.new_empty(B, G, H // G, N, 1, dtype=dtype) if normalize else q.new_empty(0),
        v.new_empty(B, G, H // G, N, Dv) if rounds else q.new_empty(0),
        q.new_empty(shape, dtype=dtype) if save_states else q.new_empty(0),
    )


def _states_shape(x: Inputs, settings: Settings) -> tuple[int, int, int, int]:
    """(chunks, B·G, E, F); the bidirectional form without documents has one state, the total."""
    (B, G, M, D), Dv = x.k.shape, x.v.shape[-1]
    chunks = 1
    if settings.causal or x.segments is not None:
        chunks = (M + settings.chunk_size - 1) // settings.chunk_size
    return chunks, B * G, Dv + settings.normalize, D if x.k_angles is None else 2 * D


@torch.library.custom_op(f"{NAMESPACE}::linear_attention_backward", mutates_args=())
def linear_attention_backward_op(
    grad_out: Tensor,
    grad_final: Tensor | None,
    out: Tensor,
    total: Tensor | None,
    rest: Tensor | None,
    states: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor | None,
    q_angles: Tensor | None,
    k_angles: Tensor | None,
    key_mask: Tensor | None,
    segments: Tensor | None,
    feature_map: str,
    causal: bool,
    normalize: bool,
    chunk_size: int,
    eps: float,
    backend: str | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v (laid out as they are) and of the state (contiguous).

    Args:
        grad_out, grad_final: gradients of the output and of the final state.
        out, total, rest, states: what `linear_attention_op` returned; states None = not kept.
        q, k, v, …, backend: as given to `linear_attention_op`.

    Raises:
        ValueError: the backend cannot run the call.
    """
    x = Inputs(q, k, v, state, q_angles, k_angles, key_mask, segments)
    settings = Settings(feature_map, causal, normalize, chunk_size, eps)
    found: list[Tensor | None] | None = None
    if states is None:
        backend = backend_of(x, settings, backend)
    else:
        # PyTorch made them.
        backend, found = "torch", [*states]
        if state is None and (causal or segments is not None):
            found[0] = None
    kept = Kept(out, total, rest, found)
    dq, dk, dv, dstate = run_backward(x, settings, kept, grad_out, grad_final, backend)
    if backend == "triton":
        dq, dk, dv = (_laid_out(a, b) for a, b in ((dq, q), (dk, k), (dv, v)))
    return dq, dk, dv, q.new_empty(0) if dstate is None else dstate


def _laid_out(grad: Tensor, x: Tensor) -> Tensor:
    """A gradient in the layout that graphs were told: that of its input, where that is dense."""
    wanted = torch.empty_like(x, device="meta").stride()
    if grad.stride() == wanted:
        return grad
    return torch.empty_strided(x.shape, wanted, dtype=x.dtype, device=x.device).copy_(grad)


@linear_attention_backward_op.register_fake
def _(grad_out, grad_final, out, total, rest, states, q, k, v, state, *others):
    dstate = q.new_empty(0) if state is None else torch.empty_like(state).contiguous()
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), dstate


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.save_states, ctx.backend = inputs
    tensors, ctx.settings = tensors[:8], tuple(tensors[8:])
    out, _, total, rest, states = output
    ctx.mark_non_differentiable(total, rest, states)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(out, total, rest, states, *tensors)


def _differentiate(ctx: Any, grad_out: Tensor | None, grad_final: Tensor | None, *_: None):
    refuse_second_derivatives()
    out, total, rest, states, *tensors = ctx.saved_tensors
    settings = Settings(*ctx.settings)
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    rounds = settings.normalize and out.dtype.itemsize == 2
    dq, dk, dv, dstate = linear_attention_backward_op(
        grad_out, grad_final, out, total if settings.normalize else None, rest if rounds else None,
        states if ctx.save_states else None, *tensors, *ctx.settings,
        ctx.backend,
    )  # fmt: skip
    return dq, dk, dv, None if tensors[3] is None else dstate, *[None] * 11


linear_attention_op.register_autograd(_differentiate, setup_context=_keep)
