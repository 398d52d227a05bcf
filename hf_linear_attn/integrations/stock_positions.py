"""Positions of the queries of cross-attention, which no stock model tells.

A decoder that continues from a cache hands one query to its cross-attention and does not say that
it is the hundredth. But in every layer of a decoder self-attention runs first, over all tokens so
far: the positions of its queries are those of the cross-attention behind it.
"""

import threading
from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.attention.documents import token_positions
from hf_linear_attn.attention.value_checks import any_wrong


class _Latest(threading.local):
    config: Any = None
    positions: Tensor | None = None


_LATEST = _Latest()


def note_queries(config: Any, positions: Tensor) -> None:
    """Called by causal self-attention; kept where the model has cross-attention.

    Args:
        config: of the module.
        positions: of its queries, int (batch, queries).
    """
    if getattr(config, "is_encoder_decoder", False) or getattr(
        config, "add_cross_attention", False
    ):
        _LATEST.config, _LATEST.positions = config, positions


def noted_queries(config: Any, query: Tensor) -> Tensor:
    """Positions of the queries of cross-attention, int (batch, queries); to be had once.

    Args:
        config: of the module.
        query: (batch, heads, queries, head_dim).

    Raises:
        ValueError: no self-attention over these queries came before.
    """
    known, positions = _LATEST.config, _LATEST.positions
    _LATEST.config = _LATEST.positions = None
    if known is not config or positions is None or (
        positions.shape != (query.shape[0], query.shape[2]) or positions.device != query.device
    ):  # fmt: skip
        raise ValueError(
            "cosformer weighs a pair by the distance of its positions, and no causal "
            "self-attention of the same layer told those of the queries of this cross-attention. "
            "Use linear_transformer here, or leave attn_implementation out."
        )
    return positions


def positions_of_last(key_mask: Tensor | None, batch: int, keys: int, query: Tensor) -> Tensor:
    """Positions of the queries of causal self-attention, int (batch, queries): its last keys.

    Args:
        key_mask: bool (batch, keys) or None.
        batch, keys: sizes.
        query: (batch, heads, queries, head_dim).
    """
    if key_mask is None:
        positions = torch.arange(keys, device=query.device).expand(batch, -1)
    else:
        positions = token_positions(key_mask, None)
    return positions[:, keys - query.shape[2] :]


def refuse_restarts(position_ids: Any, mask: Tensor | None, batch: int) -> None:
    """Refuse packed rows that only their position_ids tell.

    Transformers looks at them for the mask only where there is neither an attention_mask nor a
    cache. Otherwise a decoder would mix the documents of a row. (A model that does not hand
    position_ids to its attention mixes them unseen, as with any other implementation.)

    Args:
        position_ids: int (batch or 1, queries), or None; other shapes are coordinates.
        mask: bool (batch, keys), queries last, or None. Positions of pads are nobody's business.
        batch: rows.

    Raises:
        ValueError: a position that is not above the one before it.
    """
    if not isinstance(position_ids, Tensor) or position_ids.ndim != 2:
        return
    length = position_ids.shape[1]
    if length < 2 or position_ids.shape[0] not in (1, batch):
        return
    real = position_ids
    if mask is not None:
        real = torch.where(mask[:, -length:], position_ids, -1)
    before = real.cummax(1).values[:, :-1]
    wrong = (real[:, 1:] >= 0) & (before >= 0) & (real[:, 1:] <= before)
    message = "position_ids restart within a row, and the mask knows of no documents"
    if any_wrong(wrong, message):
        raise ValueError(
            f"{message}: with an attention_mask or a cache Transformers does not look at them, "
            "and packed documents would be mixed. Pass use_cache=False and no attention_mask, or "
            "name the documents by seq_idx with use_cache=False."
        )
