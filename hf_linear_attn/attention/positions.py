"""Positions of queries and keys: those given, or counted over the real tokens."""

import torch
from torch import Tensor

from hf_linear_attn.attention.documents import token_positions


def fill_positions(
    query: Tensor,
    key: Tensor,
    causal: bool,
    key_mask: Tensor | None,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    query_segments: Tensor | None,
    key_segments: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Positions of both sides: those given, or counted over real tokens."""
    n, m = query.shape[2], key.shape[2]
    if n == m:
        given = query_positions if query_positions is not None else key_positions
        if given is None:
            given = _count(m, key_mask, key_segments, key.device)
        return (
            given if query_positions is None else query_positions,
            given if key_positions is None else key_positions,
        )
    if key_positions is None:
        key_positions = _count(m, key_mask, key_segments, key.device)
    if query_positions is None:
        if causal:
            query_positions = key_positions[:, m - n :]
        else:
            query_positions = _count(n, None, query_segments, query.device)
    return query_positions, key_positions


def _count(
    length: int, mask: Tensor | None, segments: Tensor | None, device: torch.device
) -> Tensor:
    if mask is None and segments is None:
        return torch.arange(length, device=device)[None]
    return token_positions(mask, segments)
