"""Positions and documents of the tokens of a batch, from its padding mask and its segment ids.

Padding may stand on either side (or between tokens), several documents may share a row. The
positions of real tokens count from 0 in every document, whatever stands around them; what a pad is
given does not matter.
"""

import torch
from torch import Tensor

from hf_linear_attn.attention.value_checks import any_wrong


def fill_pads(segments: Tensor, key_mask: Tensor | None) -> Tensor:
    """Segment ids with every pad given the id of the real token before it, else after it.

    Args:
        segments: int (batch, seq).
        key_mask: bool (batch, seq), True = real token, or None.
    """
    if key_mask is None:
        return segments
    index = torch.arange(segments.shape[1], device=segments.device)
    first = key_mask.int().argmax(1, keepdim=True)
    before = torch.where(key_mask, index, -1).cummax(1).values
    return segments.gather(1, torch.where(before < 0, first, before))


def document_starts(segments: Tensor) -> Tensor:
    """Bool (batch, seq): True at the first token of each run of equal ids."""
    first = torch.ones_like(segments[:, :1], dtype=torch.bool)
    return torch.cat((first, segments[:, 1:] != segments[:, :-1]), dim=1)


def token_positions(key_mask: Tensor | None, segments: Tensor | None) -> Tensor:
    """Position of each real token in its document, from 0: int64 (batch, seq).

    Args:
        key_mask: bool (batch, seq), True = real token, or None.
        segments: int (batch, seq) or None = one document a row.

    Raises:
        ValueError: both are None (then the length is unknown).
    """
    if segments is None:
        if key_mask is None:
            raise ValueError("token_positions needs a key_mask or segments; got neither.")
        return (key_mask.long().cumsum(1) - 1).clamp_min(0)
    real = torch.ones_like(segments, dtype=torch.long) if key_mask is None else key_mask.long()
    seen_before = real.cumsum(1) - real
    starts = document_starts(fill_pads(segments, key_mask))
    base = torch.where(starts, seen_before, 0).cummax(1).values
    return seen_before - base


def document_lengths(key_mask: Tensor | None, segments: Tensor | None) -> Tensor:
    """Number of real tokens of each token's document: int64 (batch, seq), at least 1.

    Args:
        key_mask: bool (batch, seq), True = real token, or None.
        segments: int (batch, seq) or None = one document a row.

    Raises:
        ValueError: both are None.
    """
    if segments is None:
        if key_mask is None:
            raise ValueError("document_lengths needs a key_mask or segments; got neither.")
        return key_mask.long().sum(1, keepdim=True).clamp_min(1).expand(key_mask.shape)
    real = torch.ones_like(segments, dtype=torch.long) if key_mask is None else key_mask.long()
    run = document_starts(fill_pads(segments, key_mask)).long().cumsum(1) - 1
    return torch.zeros_like(real).scatter_add(1, run, real).gather(1, run).clamp_min(1)


def check_documents(segments: Tensor, key_mask: Tensor | None) -> None:
    """Refuse documents that are not contiguous.

    Raises:
        ValueError: an id comes back after another document began.
    """
    filled = fill_pads(segments, key_mask)
    runs = document_starts(filled).sum(1)
    distinct = document_starts(filled.sort(1).values).sum(1)
    if any_wrong(runs != distinct, "the documents of a row are not contiguous"):
        row = int((runs != distinct).nonzero()[0])
        raise ValueError(
            f"the documents of row {row} are not contiguous: its segment ids change "
            f"{int(runs[row]) - 1} times but name {int(distinct[row])} documents. "
            "Give each document one run of tokens and one id."
        )
