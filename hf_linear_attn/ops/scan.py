"""Unnormalised linear attention in chunks: O = (W ∘ M) V with W = φ(Q)φ(K)ᵀ, never n × n.

Three patterns M share one recursion. Let S be a running sum of vᵀφ(k) over whole chunks (a state as
callers know it, φ(k)ᵀv, transposed: then the column of ones of v is a row of S, and no matrix
product has a result of odd width, which costs a fifth of its speed):

* causal: a prefix sum S before each chunk, and the lower triangle inside the chunk;
* bidirectional: the total S, nothing inside;
* bidirectional over packed documents: a prefix sum, a suffix sum, and inside the chunk the pairs of
  one document. So many short documents cost no more than one long one, which a state per document
  would not allow.

The gradients are the same recursion with other tensors: ∂L/∂S is a running sum of φ(q)ᵀ∂O that runs
the opposite way.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hf_linear_attn.ops.documents import Gates
from hf_linear_attn.ops.operands import Rows, Values, add_product
from hf_linear_attn.ops.pattern import Bounds, Pattern


def weighted(pairs: Tensor, weight: Tensor | None, x: Tensor) -> Tensor:
    """Multiply (B·G, r·n, n) pair values in place by a (B or 1, n, n) weight."""
    if weight is None:
        return pairs
    B, G, r = x.shape[:3]
    pairs.view(B, G, r, *weight.shape[1:]).mul_(weight[:, None, None])
    return pairs


def gated(rows: Tensor, gate: Tensor | None, x: Tensor) -> Tensor:
    """Multiply (B·G, r·n, F) rows by a (B, 1, n, 1) gate."""
    if gate is None:
        return rows
    B, G, r = x.shape[:3]
    return (rows.view(B, G, r, -1, rows.shape[-1]) * gate[:, :, None]).view(rows.shape)


def advance(
    state: Tensor | None, left: Tensor, right: Tensor, keep: Tensor | None, *, own: bool
) -> Tensor:
    """state·keep + leftᵀ right, with left (B·G, rows, E), right (B·G, rows, F).

    Args:
        state: (B·G, E, F) or None.
        left, right: values and features.
        keep: gate (B, 1, 1, 1) or None.
        own: nobody else holds the state: it is updated in place.
    """
    if state is None:
        return torch.bmm(left.mT, right)
    if keep is not None:
        B = keep.shape[0]
        state, own = (state.view(B, -1, *state.shape[1:]) * keep).view(state.shape), True
    if own:
        return add_product(state, left.mT, right)
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
    """The state each chunk finds: Σ vᵀφ(k) over the chunks before it (`reverse`: behind it)."""
    states: list[Tensor | None] = [None] * len(bounds)
    state = initial
    for t in reversed(range(len(bounds))) if reverse else range(len(bounds)):
        states[t] = state
        wide, v = keys.span(*bounds[t]).wide, values.span(*bounds[t]).full
        gate = gates[t] if gates else None
        wide = gated(wide, gate.write if gate else None, keys.x)
        state = advance(state, v, wide, gate.keep if gate else None, own=False)
    return states


class Sums(NamedTuple):
    """The sums of a chunk's queries."""

    top: Tensor
    """N, (B·G, r·n, Dv)"""
    low: Tensor | None
    """D, (B·G, r·n, 1), with a normaliser"""

    def add_read(self, wide: Tensor, state: Tensor) -> None:
        """Add wide · Sᵀ in place."""
        columns = self.top.shape[-1]
        add_product(self.top, wide, state[:, :columns].mT)
        if self.low is not None:
            add_product(self.low, wide, state[:, columns:].mT)


def _read(wide: Tensor, state: Tensor, columns: int) -> Sums:
    """wide · Sᵀ, the first so many columns apart from the normaliser's."""
    top = torch.bmm(wide, state[:, :columns].mT)
    low = torch.bmm(wide, state[:, columns:].mT) if state.shape[1] > columns else None
    return Sums(top, low)


def scan(
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    initial: Tensor | None,
    emit: Callable[[Bounds, Sums], None],
    *,
    save: bool,
) -> tuple[list[Tensor | None], Tensor]:
    """Hand the sums of each query chunk to `emit`; return (prefix states, state).

    Args:
        queries, keys, values: the operands.
        pattern: which pairs attend.
        initial: state (B·G, E, F) before the first token, causal only, or None.
        emit: called once a chunk with its (start, stop) and its sums, which it may overwrite.
        save: keep the prefix states for the backward pass; otherwise only the running one lives.
    """
    if not pattern.inner:
        total = total_state(keys, values, pattern.key_spans)
        for bounds in pattern.query_spans:
            emit(bounds, _read(queries.span(*bounds).wide, total, values.v.shape[-1]))
        return [total], total
    suffix: list[Tensor | None] = []
    if pattern.suffix is not None:
        suffix = key_states(keys, values, pattern.key_spans, pattern.suffix, None, reverse=True)
    saved: list[Tensor | None] = []
    state = initial
    for t, bounds in enumerate(pattern.key_spans):
        q, k, v = queries.span(*bounds), keys.span(*bounds), values.span(*bounds)
        gate = pattern.prefix[t] if pattern.prefix else None
        pairs = torch.bmm(q.flat, k.flat.mT)
        pairs = weighted(pairs, pattern.inner_weight(queries, keys, *bounds), queries.x)
        sums = Sums(torch.bmm(pairs, v.plain), pairs.sum(-1, keepdim=True) if values.ones else None)
        if state is not None:
            sums.add_read(gated(q.wide, gate.read if gate else None, queries.x), state)
        if pattern.suffix is not None and (behind := suffix[t]) is not None:
            sums.add_read(gated(q.wide, pattern.suffix[t].read, queries.x), behind)
        if save:
            saved.append(state)
        write = gated(k.wide, gate.write if gate else None, keys.x)
        own = not save and state is not initial
        state = advance(state, v.full, write, gate.keep if gate else None, own=own)
        emit(bounds, sums)
    assert state is not None
    return saved, state


def total_state(keys: Rows, values: Values, bounds: list[Bounds]) -> Tensor:
    """Σ vᵀφ(k) over all chunks."""
    total = None
    for start, stop in bounds:
        wide, v = keys.span(start, stop).wide, values.span(start, stop).full
        total = advance(total, v, wide, None, own=True)
    assert total is not None
    return total
