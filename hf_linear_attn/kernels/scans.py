"""Scans over keys and over queries, cut along the sequence where there are few heads."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

from typing import NamedTuple

import torch
from torch import Tensor

from hf_linear_attn.kernels import launching
from hf_linear_attn.kernels.call import Call, steps
from hf_linear_attn.kernels.split_scan import split_scan
from hf_linear_attn.kernels.state_scan import state_scan


class _Side(NamedTuple):
    """What is summed up: φ(x)ᵀy, and φ(x) alone."""

    x: Tensor
    y: Tensor
    turn: tuple[Tensor | None, Tensor | None]
    turn_step: int
    mask: Tensor | None
    scale: Tensor | None
    low: Tensor | None
    heads: int
    """of x to one of the state"""
    length: int
    queries: bool


def key_scan(call: Call, *, suffix: bool) -> tuple[Tensor, Tensor]:
    """Σ φ(k)ᵀv before each chunk (`suffix`: behind it) as `Call.states_shape`, and over all.

    The latter is (B·G, F, E). Bidirectional without documents there is one state, the sum.
    """
    side = _Side(
        call.k, call.v, call.k_turn, call.turn_steps[1], call.mask, None, None, 1, call.M, False
    )
    return _scan(call, side, call.x.state, reverse=suffix, border=int(suffix))


def query_scan(
    call: Call, grad: Tensor, scale: Tensor | None, low: Tensor | None, grad_final: Tensor | None,
    *, suffix: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """∂L/∂(the state a chunk hands on) and ∂L/∂(the state before the first), like `key_scan`.

    Args:
        grad: ∂L/∂o (B, H, N, Dv).
        scale, low: of `grad_rows`.
        grad_final: ∂L/∂(final state) (B, G, F, E), or None.
        suffix: of the suffix states; their gradients run forwards.
    """
    side = _Side(
        call.q, grad, call.q_turn, call.turn_steps[0], None, scale, low, call.R, call.N, True
    )
    return _scan(call, side, grad_final, reverse=not suffix, border=int(suffix))


def _scan(
    call: Call, side: _Side, initial: Tensor | None, *, reverse: bool, border: int
) -> tuple[Tensor, Tensor]:
    groups, size = call.B * call.G, call.F * call.E
    chunks = call.tiles(side.length, call.chunk)
    found = call.configuration("state_scan")
    across = call.tiles(call.D, found.features) * call.tiles(call.Dv, found.columns)
    splits = launching.splits(chunks, across * groups, side.x.device)
    span = call.tiles(chunks, splits)
    splits = call.tiles(chunks, span)
    carried = call.borders[border]
    if initial is not None:
        initial = initial.resolve_neg().float().contiguous()
    # A tensor of the caller's own shape: a view could not be changed in place.
    final = side.x.new_empty(call.B, call.G, call.F, call.E, dtype=torch.float32)
    begin: Tensor | None = initial
    if splits > 1:
        begin = final.new_empty(splits, groups, size)
        _run(call, side, carried, None, None, begin, (splits, span, across), reverse)
        blocks = call.tiles(size, call.configuration("split_scan").columns)
        call.launch(
            split_scan, (groups, blocks), sums=begin, initial=initial, carried=carried, final=final,
            SPLITS=splits, SPAN=span, CHUNKS=chunks, SIZE=size, REVERSE=reverse,
        )  # fmt: skip
    if not call.inner:
        if splits == 1:
            _run(call, side, carried, None, None, final, (1, span, across), reverse)
        return _packed(final.flatten(0, 1), call.Dv), final
    states = final.new_empty(call.states_shape)
    end = final if splits == 1 else None
    _run(call, side, carried, begin, states, end, (splits, span, across), reverse)
    return states, final


def _run(
    call: Call, side: _Side, carried: Tensor | None, initial: Tensor | None, states: Tensor | None,
    final: Tensor | None, grid: tuple[int, int, int], reverse: bool,
) -> None:  # fmt: skip
    splits, span, across = grid
    call.launch(
        state_scan, (splits * call.B * call.G, across), x=side.x, y=side.y, cos=side.turn[0],
        sin=side.turn[1], mask=side.mask, scale=side.scale, low=side.low,
        segments=None if carried is None else call.segments, carried=carried, initial=initial,
        states=states, final=final, **steps("x", side.x), **steps("y", side.y),
        angle_b=side.turn_step, N=side.length, SPLITS=splits, SPAN=span, R=side.heads,
        QUERIES=side.queries, REVERSE=reverse,
    )  # fmt: skip


def _packed(state: Tensor, Dv: int) -> Tensor:
    """(B·G, F, E) as the kernels read a state, (1, B·G, F·E)."""
    return torch.cat((state[..., :Dv].flatten(1), state[..., Dv:].flatten(1)), dim=1)[None]
