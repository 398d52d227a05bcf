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


class _Latest(threading.local):
    config: Any = None
    positions: Tensor | None = None


_LATEST = _Latest()


def note_queries(
    config: Any, key_mask: Tensor | None, batch: int, keys: int, query: Tensor
) -> None:
    """Called by causal self-attention; kept where the model has cross-attention.

    Args:
        config: of the module.
        key_mask: bool (batch, keys) or None.
        batch, keys: sizes.
        query: (batch, heads, queries, head_dim).
    """
    wanted = getattr(config, "is_encoder_decoder", False) or getattr(
        config, "add_cross_attention", False
    )
    if not wanted:
        return
    if key_mask is None:
        positions = torch.arange(keys, device=query.device).expand(batch, -1)
    else:
        positions = token_positions(key_mask, None)
    _LATEST.config, _LATEST.positions = config, positions[:, keys - query.shape[2] :]


def noted_queries(config: Any, query: Tensor) -> Tensor:
    """Positions of the queries of cross-attention, int (batch, queries).

    Args:
        config: of the module.
        query: (batch, heads, queries, head_dim).

    Raises:
        ValueError: no self-attention over these queries came before.
    """
    positions = _LATEST.positions
    if _LATEST.config is not config or positions is None or (
        positions.shape != (query.shape[0], query.shape[2]) or positions.device != query.device
    ):  # fmt: skip
        raise ValueError(
            "cosformer weighs a pair by the distance of its positions, and no causal "
            "self-attention of the same layer told those of the queries of this cross-attention. "
            "Use linear_transformer here, or leave attn_implementation out."
        )
    return positions
