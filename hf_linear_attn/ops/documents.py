"""Packed documents in a chunked scan: which tokens of a chunk may touch the state that is carried.

A row may hold several documents, each a contiguous run of tokens with one segment id. The carried
state always belongs to exactly one document: the one of the last real key seen. So a scan needs,
for each chunk, three 0/1 gates; their cost does not depend on the number of documents.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Gates(NamedTuple):
    """Gates of one chunk, in the accumulation dtype."""

    read: Tensor
    """(B, 1, n, 1): 1 where the query belongs to the document of the incoming state"""
    write: Tensor
    """(B, 1, n, 1): 1 where the key belongs to the document of the outgoing state"""
    keep: Tensor
    """(B, 1, 1, 1): 1 where the incoming and the outgoing state are of one document"""


def chunk_gates(
    segments: Tensor,
    mask: Tensor | None,
    spans: list[tuple[int, int]],
    dtype: torch.dtype,
    *,
    reverse: bool,
) -> list[Gates]:
    """Gates of every chunk, in the order of `spans`.

    Args:
        segments: int (B, N), the document of each token; documents are contiguous.
        mask: bool (B, N), True = real token, or None.
        spans: (start, stop) of each chunk, ascending.
        dtype: dtype of the gates.
        reverse: the scan runs from the last chunk to the first.
    """
    gates: list[Gates] = []
    carried = segments[:, -1] if reverse else segments[:, 0]
    for start, stop in reversed(spans) if reverse else spans:
        ids = segments[:, start:stop]
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask[:, start:stop]
        # The carried document is the one of the outermost real key in the direction of the scan.
        order = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        rank = torch.where(real, order.flip(0) if reverse else order, 0)
        edge = ids.gather(1, rank.argmax(1, keepdim=True)).squeeze(1)
        following = torch.where(real.any(1), edge, carried)
        gates.append(
            Gates(
                read=(ids == carried[:, None]).to(dtype)[:, None, :, None],
                write=(ids == following[:, None]).to(dtype)[:, None, :, None],
                keep=(following == carried).to(dtype)[:, None, None, None],
            )
        )
        carried = following
    return gates[::-1] if reverse else gates
