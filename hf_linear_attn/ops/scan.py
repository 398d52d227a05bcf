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

import torch
from torch import Tensor

from hf_linear_attn.ops.documents import Gates
from hf_linear_attn.ops.operands import Rows, Values
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


def advance(state: Tensor | None, left: Tensor, right: Tensor, keep: Tensor | None) -> Tensor:
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
        wide = gated(wide, gate.write if gate else None, keys.x)
        state = advance(state, wide, v, gate.keep if gate else None)
    return states


def _add_read(
    out: Tensor, wide: Tensor, state: Tensor | None, gate: Tensor | None, x: Tensor
) -> None:
    """Add gate ∘ (wide · state) to `out` in place, if there is a state."""
    if state is not None:
        out.add_(torch.bmm(gated(wide, gate, x), state))


def scan(
    queries: Rows,
    keys: Rows,
    values: Values,
    pattern: Pattern,
    initial: Tensor | None,
    emit: Callable[[Bounds, Tensor], None],
    *,
    save: bool,
) -> tuple[list[Tensor | None], Tensor]:
    """Hand the output (B·G, r·n, E) of each query chunk to `emit`; return (prefix states, state).

    Args:
        queries, keys, values: the operands.
        pattern: which pairs attend.
        initial: state (B·G, F, E) before the first token, causal only, or None.
        emit: called once a chunk with its (start, stop) and its output.
        save: keep the prefix states for the backward pass; otherwise only the running one lives.
    """
    if not pattern.inner:
        total = total_state(keys, values, pattern.key_spans)
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
        pairs = weighted(pairs, pattern.inner_weight(queries, keys, *bounds), queries.x)
        out = torch.bmm(pairs, v)
        _add_read(out, q.wide, state, gate.read if gate else None, queries.x)
        if suffix is not None and pattern.suffix is not None:
            _add_read(out, q.wide, suffix[t], pattern.suffix[t].read, queries.x)
        if save:
            saved.append(state)
        write = gated(k.wide, gate.write if gate else None, keys.x)
        state = advance(state, write, v, gate.keep if gate else None)
        emit(bounds, out)
    assert state is not None
    return saved, state


def total_state(keys: Rows, values: Values, bounds: list[Bounds]) -> Tensor:
    """Σ φ(k)ᵀv over all chunks."""
    total = None
    for start, stop in bounds:
        total = advance(total, keys.span(start, stop).wide, values.span(start, stop), None)
    assert total is not None
    return total
