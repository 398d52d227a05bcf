"""Unnormalised linear attention in chunks: O = (W ∘ M) V with W = φ(Q)φ(K)ᵀ, never n × n.

Three patterns M share one recursion. Let S be a running sum of φ(k)ᵀv over whole chunks:

* causal: a prefix sum S before each chunk, and the lower triangle inside the chunk;
* bidirectional: the total S, nothing inside;
* bidirectional over packed documents: a prefix sum, a suffix sum, and inside the chunk the pairs of
  one document. So many short documents cost no more than one long one, which a state per document
  would not allow.

The gradients are the same recursion with other tensors: ∂L/∂S is a running sum of φ(q)ᵀ∂O that runs
the opposite way.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_linear_attn.ops.documents import Gates, chunk_gates
from hf_linear_attn.ops.operands import Rows, Span, Values

Bounds = tuple[int, int]

# Without an inner part a chunk only bounds the size of temporaries; longer ones are faster.
STREAM_CHUNK = 256


def spans(length: int, chunk: int) -> list[Bounds]:
    """(start, stop) of each chunk; the last one may be short."""
    return [(start, min(start + chunk, length)) for start in range(0, length, chunk)]


@dataclass
class Pattern:
    """Which pairs attend, and how the sequence is cut."""

    query_spans: list[Bounds]
    key_spans: list[Bounds]
    causal: bool
    inner: bool
    """pairs inside a chunk are computed there; otherwise a state holds them"""
    prefix: list[Gates] | None
    """gates of the prefix scan; None = one document"""
    suffix: list[Gates] | None
    """gates of the suffix scan; None = no such scan"""
    segments: Tensor | None

    @classmethod
    def build(
        cls, queries: Rows, keys: Rows, segments: Tensor | None, mask: Tensor | None, *,
        causal: bool, chunk: int,
    ) -> "Pattern":  # fmt: skip
        """The pattern of a call; `segments` int (B, N) or None."""
        inner = causal or segments is not None
        chunk = chunk if inner else STREAM_CHUNK
        query_spans, key_spans = spans(queries.length, chunk), spans(keys.length, chunk)
        prefix = suffix = None
        if segments is not None:
            prefix = chunk_gates(segments, mask, key_spans, keys.dtype, reverse=False)
            if not causal:
                suffix = chunk_gates(segments, mask, key_spans, keys.dtype, reverse=True)
        return cls(query_spans, key_spans, causal, inner, prefix, suffix, segments)

    def inner_weight(self, queries: Rows, keys: Rows, start: int, stop: int) -> Tensor | None:
        """Weight of each pair of a chunk beside φ(q)·φ(k): (B or 1, n, n), or None for all ones."""
        weight: Tensor | None = None
        if queries.turn is not None and keys.turn is not None:
            # cos(a − b) = cos a cos b + sin a sin b, so the products stay at width D.
            cq, sq = (turn[:, 0, 0, start:stop] for turn in queries.turn)
            ck, sk = (turn[:, 0, 0, start:stop] for turn in keys.turn)
            weight = cq * ck.mT + sq * sk.mT
        if self.causal:
            n = stop - start
            weight = queries.x.new_ones(1, n, n, dtype=queries.dtype) if weight is None else weight
            weight = weight.tril()
        if self.segments is not None:
            ids = self.segments[:, start:stop]
            same = (ids[:, :, None] == ids[:, None, :]).to(queries.dtype)
            weight = same if weight is None else weight * same
        return weight


def _weighted(pairs: Tensor, weight: Tensor | None, x: Tensor) -> Tensor:
    """Multiply (B·G, r·n, n) pair values in place by a (B or 1, n, n) weight."""
    if weight is None:
        return pairs
    B, G, r = x.shape[:3]
    pairs.view(B, G, r, *weight.shape[1:]).mul_(weight[:, None, None])
    return pairs


def _gated(rows: Tensor, gate: Tensor | None, x: Tensor) -> Tensor:
    """Multiply (B·G, r·n, F) rows by a (B, 1, n, 1) gate."""
    if gate is None:
        return rows
    B, G, r = x.shape[:3]
    return (rows.view(B, G, r, -1, rows.shape[-1]) * gate[:, :, None]).view(rows.shape)


def _advance(state: Tensor | None, left: Tensor, right: Tensor, keep: Tensor | None) -> Tensor:
    """state·keep + leftᵀ right, with left (B·G, rows, F), right (B·G, rows, E)."""
    if state is None:
        return torch.bmm(left.mT, right)
    if keep is not None:
        B = keep.shape[0]
        state = (state.view(B, -1, *state.shape[1:]) * keep).view(state.shape)
    return torch.baddbmm(state, left.mT, right)


def key_states(
    keys: Rows,
    values: Values,
    bounds: list[Bounds],
    gates: list[Gates] | None,
    initial: Tensor | None,
    *,
    reverse: bool,
) -> list[Tensor | None]:
    """The state each chunk finds: Σ φ(k)ᵀv over the chunks before it (`reverse`: behind it)."""
    states: list[Tensor | None] = [None] * len(bounds)
    state = initial
    for t in reversed(range(len(bounds))) if reverse else range(len(bounds)):
        states[t] = state
        wide, v = keys.span(*bounds[t]).wide, values.span(*bounds[t])
        gate = gates[t] if gates else None
        wide = _gated(wide, gate.write if gate else None, keys.x)
        state = _advance(state, wide, v, gate.keep if gate else None)
    return states


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
        wide = _gated(queries.span(*bounds[t]).wide, gate.read if gate else None, queries.x)
        state = _advance(state, wide, grads[t], gate.keep if gate else None)
    return states, state


def _add_read(
    out: Tensor | None, wide: Tensor, state: Tensor | None, gate: Tensor | None, x: Tensor
) -> Tensor | None:
    """out + gate ∘ (wide · state); either part may be absent."""
    if state is None:
        return out
    read = torch.bmm(_gated(wide, gate, x), state)
    return read if out is None else out.add_(read)


def scan(
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    initial: Tensor | None,
    emit: Callable[[Bounds, Tensor], None],
    *,
    save: bool,
) -> tuple[list[Tensor | None], Tensor | None]:
    """Hand the output (B·G, r·n, E) of each query chunk to `emit`; return (prefix states, state).

    Args:
        queries, keys, values: the operands.
        pattern: which pairs attend.
        initial: state (B·G, F, E) before the first token, causal only, or None.
        emit: called once a chunk with its (start, stop) and its output.
        save: keep the prefix states for the backward pass; otherwise only the running one lives.
    """
    if not pattern.inner:
        total = _total(keys, values, pattern.key_spans)
        for bounds in pattern.query_spans:
            emit(bounds, torch.bmm(queries.span(*bounds).wide, total))
        return [total], total
    suffix = None
    if pattern.suffix is not None:
        suffix = key_states(keys, values, pattern.key_spans, pattern.suffix, None, reverse=True)
    saved: list[Tensor | None] = []
    state = initial
    for t, bounds in enumerate(pattern.key_spans):
        q, k, v = queries.span(*bounds), keys.span(*bounds), values.span(*bounds)
        gate = pattern.prefix[t] if pattern.prefix else None
        pairs = torch.bmm(q.flat, k.flat.mT)
        pairs = _weighted(pairs, pattern.inner_weight(queries, keys, *bounds), queries.x)
        out = torch.bmm(pairs, v)
        _add_read(out, q.wide, state, gate.read if gate else None, queries.x)
        if suffix is not None and pattern.suffix is not None:
            _add_read(out, q.wide, suffix[t], pattern.suffix[t].read, queries.x)
        if save:
            saved.append(state)
        write = _gated(k.wide, gate.write if gate else None, keys.x)
        state = _advance(state, write, v, gate.keep if gate else None)
        emit(bounds, out)
    return saved, state


def _total(keys: Rows, values: Values, bounds: list[Bounds]) -> Tensor:
    total = None
    for start, stop in bounds:
        total = _advance(total, keys.span(start, stop).wide, values.span(start, stop), None)
    if total is None:
        raise ValueError("linear attention got no keys: key length is 0; it must be at least 1.")
    return total


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
        found = key_states(keys, values, bounds, pattern.suffix, None, reverse=True)
        back, _ = query_states(queries, grad_chunks, bounds, pattern.suffix, None, reverse=False)
        directions.append((found, back, pattern.suffix))
    for t, (start, stop) in enumerate(bounds):
        q, k, v = queries.span(start, stop), keys.span(start, stop), values.span(start, stop)
        weight = pattern.inner_weight(queries, keys, start, stop)
        dq, dk, dv = _inner_backward(q, k, v, grad_chunks[t], weight, queries.x)
        for states, grads, gates in directions:
            gate = gates[t] if gates else None
            read, write = (gate.read, gate.write) if gate else (None, None)
            if (state := states[t]) is not None:
                wide = torch.bmm(_gated(grad_chunks[t], read, queries.x), state.mT)
                dq += queries.narrow(wide, start, stop)
            if (grad := grads[t]) is not None:
                wide = torch.bmm(_gated(v, write, keys.x), grad.mT)
                dk += keys.narrow(wide, start, stop)
                dv += torch.bmm(_gated(k.wide, write, keys.x), grad)
        queries.store_grad(dq, q, start, stop, out.q)
        keys.store_grad(dk, k, start, stop, out.k)
        _store_value_grad(dv, values, start, stop, out.v)
    return grad_initial


def _inner_backward(
    q: Span, k: Span, v: Tensor, grad: Tensor, weight: Tensor | None, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of flat q, flat k and v through the pairs inside one chunk."""
    dpairs = _weighted(torch.bmm(grad, v.mT), weight, x)
    pairs = _weighted(torch.bmm(q.flat, k.flat.mT), weight, x)
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
        total = _total(keys, values, pattern.key_spans)
    grad_total = None
    for (start, stop), grad in zip(pattern.query_spans, grad_chunks, strict=True):
        q = queries.span(start, stop)
        dq = queries.narrow(torch.bmm(grad, total.mT), start, stop)
        queries.store_grad(dq, q, start, stop, out.q)
        grad_total = _advance(grad_total, q.wide, grad, None)
    if grad_total is None:
        out.k.zero_()
        out.v.zero_()
        return
    for start, stop in pattern.key_spans:
        k, v = keys.span(start, stop), values.span(start, stop)
        dk = keys.narrow(torch.bmm(v, grad_total.mT), start, stop)
        keys.store_grad(dk, k, start, stop, out.k)
        _store_value_grad(torch.bmm(k.wide, grad_total), values, start, stop, out.v)
