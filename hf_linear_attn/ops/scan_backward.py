"""Gradients of the scan: the same recursion, with queries for keys, running the other way."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hf_linear_attn.ops.documents import Gates
from hf_linear_attn.ops.operands import Rows, Span, Values
from hf_linear_attn.ops.pattern import Bounds, Pattern
from hf_linear_attn.ops.scan import advance, gated, key_states, total_state, weighted


def query_states(
    queries: Rows,
    grads: list[Tensor],
    bounds: list[Bounds],
    gates: list[Gates] | None,
    initial: Tensor | None,
    *,
    reverse: bool,
) -> tuple[list[Tensor | None], Tensor | None]:
    """∂L/∂(state a chunk hands on), for each chunk, and ∂L/∂(state the scan began with).

    `reverse` is the direction of this sum: against the scan of the keys.
    """
    states: list[Tensor | None] = [None] * len(bounds)
    state = initial
    for t in reversed(range(len(bounds))) if reverse else range(len(bounds)):
        states[t] = state
        gate = gates[t] if gates else None
        wide = gated(queries.span(*bounds[t]).wide, gate.read if gate else None, queries.x)
        state = advance(state, wide, grads[t], gate.keep if gate else None)
    return states, state


@dataclass
class Grads:
    """Where the gradients of q, k, v go, shaped like the operands."""

    q: Tensor
    k: Tensor
    v: Tensor


def _store_value_grad(grad: Tensor, values: Values, start: int, stop: int, out: Tensor) -> None:
    B, G, _, Dv = out.shape
    out[:, :, start:stop] = grad.view(B, G, stop - start, -1)[..., :Dv]


def scan_backward(
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    saved: list[Tensor | None] | None,
    initial: Tensor | None,
    grad_chunks: list[Tensor],
    grad_final: Tensor | None,
    out: Grads,
) -> Tensor | None:
    """Write ∂L/∂q, ∂L/∂k, ∂L/∂v into `out`; return ∂L/∂(initial state).

    Args:
        queries, keys, values, pattern: as in `scan`.
        saved: the prefix states of the forward pass, or None to compute them again.
        initial: as in `scan`.
        grad_chunks: ∂L/∂output of each query chunk, (B·G, r·n, E).
        grad_final: ∂L/∂(final state) (B·G, F, E) or None.
        out: result tensors.
    """
    if not pattern.inner:
        _stream_backward(queries, keys, values, pattern, saved, grad_chunks, out)
        return None
    bounds = pattern.key_spans
    if saved is None:
        saved = key_states(keys, values, bounds, pattern.prefix, initial, reverse=False)
    handed, grad_initial = query_states(
        queries, grad_chunks, bounds, pattern.prefix, grad_final, reverse=True
    )
    directions = [(saved, handed, pattern.prefix)]
    if pattern.suffix is not None:
        states = key_states(keys, values, bounds, pattern.suffix, None, reverse=True)
        grads, _ = query_states(queries, grad_chunks, bounds, pattern.suffix, None, reverse=False)
        directions.append((states, grads, pattern.suffix))
    for t in range(len(bounds)):
        found = [
            Found(states[t], grads[t], gates[t] if gates else None)
            for states, grads, gates in directions
        ]
        _chunk_backward(queries, keys, values, pattern, bounds[t], grad_chunks[t], found, out)
    return grad_initial


class Found(NamedTuple):
    """What one direction of the scan hands to a chunk."""

    state: Tensor | None
    """the sum of φ(k)ᵀv the chunk's queries read"""
    grad: Tensor | None
    """∂L/∂(the sum the chunk's keys are written to)"""
    gates: Gates | None


def _chunk_backward(
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
    q, k, v = queries.span(*bounds), keys.span(*bounds), values.span(*bounds)
    weight = pattern.inner_weight(queries, keys, *bounds)
    dq, dk, dv = _inner_backward(q, k, v, upstream, weight, queries.x)
    for state, grad, gates in directions:
        read, write = (gates.read, gates.write) if gates else (None, None)
        if state is not None:
            wide = torch.bmm(gated(upstream, read, queries.x), state.mT)
            dq += queries.narrow(wide, *bounds)
        if grad is not None:
            wide = torch.bmm(gated(v, write, keys.x), grad.mT)
            dk += keys.narrow(wide, *bounds)
            dv += torch.bmm(gated(k.wide, write, keys.x), grad)
    queries.store_grad(dq, q, *bounds, out.q)
    keys.store_grad(dk, k, *bounds, out.k)
    _store_value_grad(dv, values, *bounds, out.v)


def _inner_backward(
    q: Span, k: Span, v: Tensor, grad: Tensor, weight: Tensor | None, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of flat q, flat k and v through the pairs inside one chunk."""
    dpairs = weighted(torch.bmm(grad, v.mT), weight, x)
    pairs = weighted(torch.bmm(q.flat, k.flat.mT), weight, x)
    return torch.bmm(dpairs, k.flat), torch.bmm(dpairs.mT, q.flat), torch.bmm(pairs.mT, grad)


def _stream_backward(
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    saved: list[Tensor | None] | None,
    grad_chunks: list[Tensor],
    out: Grads,
) -> None:
    """Backward of the bidirectional pattern: one total state each way."""
    total = saved[0] if saved else None
    if total is None:
        total = total_state(keys, values, pattern.key_spans)
    grad_total = None
    for (start, stop), grad in zip(pattern.query_spans, grad_chunks, strict=True):
        q = queries.span(start, stop)
        dq = queries.narrow(torch.bmm(grad, total.mT), start, stop)
        queries.store_grad(dq, q, start, stop, out.q)
        grad_total = advance(grad_total, q.wide, grad, None)
    if grad_total is None:
        out.k.zero_()
        out.v.zero_()
        return
    for start, stop in pattern.key_spans:
        k, v = keys.span(start, stop), values.span(start, stop)
        dk = keys.narrow(torch.bmm(v, grad_total.mT), start, stop)
        keys.store_grad(dk, k, start, stop, out.k)
        _store_value_grad(torch.bmm(k.wide, grad_total), values, start, stop, out.v)
