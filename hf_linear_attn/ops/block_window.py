"""The state of block attention: the block that is being filled, one slot a position.

(B, G, w, D + Dv + 1) of keys, values and 1 + block index; 0 there = empty slot.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class BlockTokens(NamedTuple):
    """Queries, keys and values, real tokens first, in the accumulation dtype."""

    q: Tensor
    """(B, H, N, D)"""
    k: Tensor
    """(B, G, N, D)"""
    v: Tensor
    """(B, G, N, Dv)"""
    block: Tensor
    """int (B or 1, N), ⌊p/w⌋"""
    slot: Tensor
    """int (B or 1, N), p mod w"""
    label: Tensor
    """int (B or 1, N), equal where block and document are"""
    real: Tensor | None
    """bool (B, N)"""


def next_position(state: Tensor) -> Tensor:
    """One above the highest position in a state, int (B,); 0 = empty."""
    w = state.shape[2]
    slots = torch.arange(1, w + 1, device=state.device)
    return torch.where(state[:, 0, :, -1] > 0, window_block(state) * w + slots, 0).amax(1)


def window_block(window: Tensor) -> Tensor:
    """Block of every slot of a state, int (B, w); −1 = empty."""
    return window[:, 0, :, -1].detach().round().long() - 1


def next_state(tokens: BlockTokens, window: Tensor | None, w: int) -> Tensor:
    """The block that the last real token of each row stands in."""
    B, G, N, _ = tokens.k.shape
    device = tokens.k.device
    count = torch.full((1, 1), N, device=device)
    if tokens.real is not None:
        count = tokens.real.sum(1, keepdim=True)
    index = (count - w + torch.arange(w, device=device)).expand(B, w)
    there, index = index >= 0, index.clamp_min(0)
    block, slot, label = (
        x.expand(B, N).gather(1, index) for x in (tokens.block, tokens.slot, tokens.label)
    )
    rows = torch.cat((tokens.k, tokens.v), -1)
    rows = rows.gather(2, index[:, None, :, None].expand(B, G, w, rows.shape[-1]))
    current = torch.where(there[:, -1:], block[:, -1:], -1)
    keep = there & (label == label[:, -1:])
    if window is not None:
        held = window_block(window)
        current = torch.where(there[:, -1:], current, held.amax(1, keepdim=True))
        keep = torch.cat(((held == current) & (held >= 0), keep), 1)
        slot = torch.cat((torch.arange(w, device=device).expand(B, w), slot), 1)
        rows = torch.cat((window[..., :-1], rows), 2)
    marks = (current + 1).to(rows.dtype)[:, None, :, None].expand(*rows.shape[:-1], 1)
    rows = torch.cat((rows, marks), -1)
    # What does not stay is written to a slot that is cut off.
    slot = torch.where(keep, slot, w)[:, None, :, None].expand(rows.shape)
    final = rows.new_zeros(B, G, w + 1, rows.shape[-1]).scatter(2, slot, rows)
    return final[:, :, :w]
