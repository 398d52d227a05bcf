"""Gradients of the scan: the same recursion, with queries for keys, running the other way.

One sweep against the direction of the keys: the gradient of the state needs no list of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hf_linear_attn.ops.documents import Gates
from hf_linear_attn.ops.operands import Rows, Span, Values, ValueSpan, add_product
from hf_linear_attn.ops.pattern import Bounds, Pattern
from hf_linear_attn.ops.scan import advance, gated, key_states, total_state, weighted

Upstream = Callable[[int, int], Tensor]
"""(start, stop) of a query chunk -> ∂L/∂[N, D] of it, (B·G, r·n, E)"""


def _suffix_grads(
    queries: Rows, upstream: Upstream, bounds: list[Bounds], gates: list[Gates]
) -> list[Tensor | None]:
    """∂L/∂(state a chunk hands on to the one before it), for each chunk."""
    states: list[Tensor | None] = [None] * len(bounds)
    state = None
    for t in range(len(bounds)):
        states[t] = state
        wide = gated(queries.span(*bounds[t]).wide, gates[t].read, queries.x)
        state = advance(state, upstream(*bounds[t]), wide, gates[t].keep, own=False)
    return states


@dataclass
class Grads:
    """Where the gradients of q, k, v go, shaped like the operands."""

    q: Tensor
    k: Tensor
    v: Tensor


def _store_value_grad(grad: Tensor, start: int, stop: int, out: Tensor) -> None:
    B, G, _, Dv = out.shape
    out[:, :, start:stop] = grad.view(B, G, stop - start, Dv)


def scan_backward(
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    saved: list[Tensor | None] | None,
    initial: Tensor | None,
    upstream: Upstream,
    grad_final: Tensor | None,
    out: Grads,
) -> Tensor | None:
    """Write ∂L/∂q, ∂L/∂k, ∂L/∂v into `out`; return ∂L/∂(initial state).

    Args:
        queries, keys, values, pattern: as in `scan`.
        saved: the prefix states of the forward pass, or None to compute them again.
        initial: as in `scan`.
        upstream: gives ∂L/∂[N, D] of a query chunk.
        grad_final: ∂L/∂(final state) (B·G, E, F) or None.
        out: result tensors.
    """
    if not pattern.inner:
        _stream_backward(queries, keys, values, pattern, saved, upstream, out)
        return None
    bounds = pattern.key_spans
    if saved is None:
        saved = key_states(keys, values, bounds, pattern.prefix, initial, reverse=False)
    behind: list[Found] = []
    if pattern.suffix is not None:
        states = key_states(keys, values, bounds, pattern.suffix, None, reverse=True)
        grads = _suffix_grads(queries, upstream, bounds, pattern.suffix)
        behind = [Found(*found) for found in zip(states, grads, pattern.suffix, strict=True)]
    grad_state = grad_final
    for t in reversed(range(len(bounds))):
        gates = pattern.prefix[t] if pattern.prefix else None
        q, grad = queries.span(*bounds[t]), upstream(*bounds[t])
        found = [Found(saved[t], grad_state, gates), *behind[t : t + 1]]
        _chunk_backward(q, queries, keys, values, pattern, bounds[t], grad, found, out)
        wide = gated(q.wide, gates.read if gates else None, queries.x)
        keep, own = gates.keep if gates else None, grad_state is not grad_final
        grad_state = advance(grad_state, grad, wide, keep, own=own)
    return grad_state


class Found(NamedTuple):
    """What one direction of the scan hands to a chunk."""

    state: Tensor | None
    """the sum of vᵀφ(k) the chunk's queries read"""
    grad: Tensor | None
    """∂L/∂(the sum the chunk's keys are written to)"""
    gates: Gates | None


def _chunk_backward(
    q: Span,
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    bounds: Bounds,
    upstream: Tensor,
    directions: list[Found],
    out: Grads,
) -> None:
    """Write the gradients of one chunk's q, k and v."""
    k, v = keys.span(*bounds), values.span(*bounds)
    weight = pattern.inner_weight(queries, keys, *bounds)
    dq, dk, dv = _inner_backward(q, k, v, upstream, weight, queries.x)
    for state, grad, gates in directions:
        read, write = (gates.read, gates.write) if gates else (None, None)
        if state is not None:
            dq = queries.pull(dq, gated(upstream, read, queries.x), state, *bounds)
        if grad is not None:
            dk = keys.pull(dk, gated(v.full, write, keys.x), grad, *bounds)
            add_product(dv, gated(k.wide, write, keys.x), grad[:, : dv.shape[-1]].mT)
    queries.store_grad(dq, q, *bounds, out.q)
    keys.store_grad(dk, k, *bounds, out.k)
    _store_value_grad(dv, *bounds, out.v)


def _inner_backward(
    q: Span, k: Span, v: ValueSpan, grad: Tensor, weight: Tensor | None, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of flat q, flat k and v through the pairs inside one chunk."""
    dpairs = weighted(torch.bmm(grad, v.full.mT), weight, x)
    pairs = weighted(torch.bmm(q.flat, k.flat.mT), weight, x)
    dv = torch.bmm(pairs.mT, grad[..., : v.plain.shape[-1]])
    return torch.bmm(dpairs, k.flat), torch.bmm(dpairs.mT, q.flat), dv


def _stream_backward(
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    saved: list[Tensor | None] | None,
    upstream: Upstream,
    out: Grads,
) -> None:
    """Backward of the bidirectional pattern: one total state each way."""
    total = saved[0] if saved else None
    if total is None:
        total = total_state(keys, values, pattern.key_spans)
    grad_total = None
    for start, stop in pattern.query_spans:
        q, grad = queries.span(start, stop), upstream(start, stop)
        dq = queries.pull(None, grad, total, start, stop)
        queries.store_grad(dq, q, start, stop, out.q)
        grad_total = advance(grad_total, grad, q.wide, None, own=True)
    if grad_total is None:
        out.k.zero_()
        out.v.zero_()
        return
    for start, stop in pattern.key_spans:
        k, v = keys.span(start, stop), values.span(start, stop)
        dk = keys.pull(None, v.full, grad_total, start, stop)
        keys.store_grad(dk, k, start, stop, out.k)
        dv = torch.bmm(k.wide, grad_total[:, : out.v.shape[-1]].mT)
        _store_value_grad(dv, start, stop, out.v)
