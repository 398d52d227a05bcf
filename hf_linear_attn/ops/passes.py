"""The forward and the backward pass of linear attention, as functions without autograd.

Eager calls wrap them in an autograd function, compiled graphs in an operator.
"""

import torch
from torch import Tensor

from hf_linear_attn.linear_attention_types import Gradients, Inputs, Kept, Settings
from hf_linear_attn.ops.feature_maps import get_feature_map
from hf_linear_attn.ops.normaliser import Normaliser
from hf_linear_attn.ops.operands import Rows, Values, accumulation_dtype, blanked
from hf_linear_attn.ops.pattern import Bounds, Pattern
from hf_linear_attn.ops.scan import Sums, scan
from hf_linear_attn.ops.scan_backward import Grads, scan_backward


def forward_pass(x: Inputs, settings: Settings, save: bool) -> tuple[Kept, Tensor | None]:
    """The output with what backward needs, and the final state (B, G, F, E) if causal.

    `Kept.states` holds (B·G, E, F) before each chunk, None where there was none.

    Args:
        x, settings: as given to `linear_attention`, checked.
        save: keep the states.
    """
    with torch.autocast(x.q.device.type, enabled=False):
        queries, keys, values, pattern = _operands(x, settings)
        B, G, r, N, _ = queries.x.shape
        # Callers get tensors that are no views, which may be changed in place.
        whole = x.v.new_empty(B, G * r, N, x.v.shape[-1])
        out = whole.unflatten(1, (G, r))
        norm = Normaliser(out, queries.dtype, settings.eps) if settings.normalize else None

        def emit(bounds: Bounds, sums: Sums) -> None:
            start, stop = bounds
            top = sums.top.view(B, G, r, stop - start, -1)
            if norm is None or sums.low is None:
                out[:, :, :, start:stop] = top
            else:
                norm.write(top, sums.low.view(B, G, r, stop - start, 1), start, stop)

        initial = _flat(x.state, queries)
        states, final = scan(queries, keys, values, pattern, initial, emit, save=save)
    total, rest = (None, None) if norm is None else (norm.total, norm.rest)
    kept = Kept(whole, total, rest, states if save else None)
    if not settings.causal:
        return kept, None
    state = final.new_empty(B, G, *final.mT.shape[1:])
    state.flatten(0, 1).copy_(final.mT)
    return kept, state


def backward_pass(
    x: Inputs, settings: Settings, kept: Kept, grad_out: Tensor, grad_final: Tensor | None
) -> Gradients:
    """Gradients of q, k, v (laid out as they are) and of the state, None without one."""
    with torch.autocast(x.q.device.type, enabled=False):
        query_mask = None if x.key_mask is None else _alive(grad_out)
        operands = _operands(x, settings, query_mask)
        queries, keys, values, pattern = operands
        groups = queries.x.shape[1:3]
        norm = None
        if settings.normalize:
            out = kept.out.unflatten(1, groups)
            norm = Normaliser(out, queries.dtype, settings.eps, kept.total, kept.rest)
        grad_out = grad_out.unflatten(1, groups)

        def upstream(start: int, stop: int) -> Tensor:
            return _upstream(queries, norm, grad_out, start, stop)

        grads = Grads(*(torch.empty_like(t) for t in (queries.x, keys.x, values.v)))
        saved = None if kept.states is None else list(kept.states)
        grad_state = scan_backward(
            queries, keys, values, pattern, saved, _flat(x.state, queries), upstream,
            _flat(grad_final, queries), grads,
        )  # fmt: skip
        if x.state is None or grad_state is None:
            grad_state = None
        else:
            grad_state = grad_state.mT.contiguous().view(x.state.shape).to(x.state.dtype)
    return grads.q.flatten(1, 2), grads.k.squeeze(2), grads.v, grad_state


def _operands(
    x: Inputs, settings: Settings, query_mask: Tensor | None = None
) -> tuple[Rows, Rows, Values, Pattern]:
    dtype = accumulation_dtype(x.q, x.k, x.v)
    groups = (x.k.shape[1], x.q.shape[1] // x.k.shape[1])
    feature_map = get_feature_map(settings.feature_map)
    queries = Rows(x.q.unflatten(1, groups), feature_map, x.q_angles, query_mask, dtype)
    keys = Rows(x.k.unsqueeze(2), feature_map, x.k_angles, x.key_mask, dtype)
    values = Values(x.v, x.key_mask, dtype, ones=settings.normalize)
    pattern = Pattern.build(
        queries, keys, x.segments, x.key_mask, causal=settings.causal, chunk=settings.chunk_size
    )
    return queries, keys, values, pattern


def _alive(grad_out: Tensor) -> Tensor:
    """Bool (B, N): queries that matter; whatever stands at the others must not get through."""
    largest, smallest = grad_out.amax(3).amax(1), grad_out.amin(3).amin(1)
    return (largest != 0) | (smallest != 0)


def _flat(state: Tensor | None, queries: Rows) -> Tensor | None:
    """A state as callers have it, (B, G, F, E), to (B·G, E, F)."""
    return None if state is None else state.to(queries.dtype).flatten(0, 1).mT


def _upstream(
    queries: Rows, norm: Normaliser | None, grad_out: Tensor, start: int, stop: int
) -> Tensor:
    """∂L/∂[N, D] of a query chunk, (B·G, r·n, E)."""
    grad = grad_out[:, :, :, start:stop].to(queries.dtype)
    if norm is not None:
        grad = norm.backward(grad, start, stop)
    if queries.real is not None:
        grad = blanked(grad, queries.real[:, :, :, start:stop])
    B, G = queries.x.shape[:2]
    return grad.reshape(B * G, -1, grad.shape[-1])
