"""Packed documents laid out as rows of their own, for what has no packed form."""

from collections.abc import Callable

import torch
from torch import Tensor

RowFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def over_documents(
    function: RowFunction, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, segments: Tensor
) -> Tensor:
    """Apply `function(q, k, v, mask)` to every document as if it were alone.

    Documents of about one length (within a factor of 2) are batched, so memory stays linear in the
    number of tokens however uneven they are. What is put together depends on the data: this cannot
    be traced into one graph.

    Args:
        function: takes tensors (documents, heads, length, ·) and a bool mask (documents, length).
        q, k, v: (B, H or G, N, ·).
        mask: bool (B, N), True = real token, or None.
        segments: int (B, N); documents are contiguous.

    Returns:
        (B, H, N, ·) in the dtype the function returns; 0 at pads.
    """
    B, N = segments.shape
    real = torch.ones_like(segments, dtype=torch.bool) if mask is None else mask
    place = real.flatten().nonzero().squeeze(1)
    """column of each real token in the batch laid end to end"""
    ids = torch.stack((place // N, segments.flatten()[place]))
    starts = torch.ones_like(place, dtype=torch.bool)
    starts[1:] = (ids[:, 1:] != ids[:, :-1]).any(0)
    first = starts.nonzero().squeeze(1)
    length = torch.diff(first, append=first.new_tensor([len(place)]))
    sides = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    places, parts = [], []
    bucket = torch.ceil(torch.log2(length.double()))
    for size in bucket.unique():
        chosen = bucket == size
        longest = int(length[chosen].max())
        steps = torch.arange(longest, device=place.device)
        there = steps < length[chosen][:, None]
        index = place[(first[chosen][:, None] + steps).clamp_max(len(place) - 1)]
        rows_q, rows_k, rows_v = (x[index].transpose(1, 2) for x in sides)
        parts.append(function(rows_q, rows_k, rows_v, there).transpose(1, 2)[there])
        places.append(index[there])
    if not parts:
        # Nothing is real, and still a backward pass may ask.
        nothing = sum(x[:, :, :0].sum() for x in (q, k, v))
        return q.new_zeros(B, q.shape[1], N, v.shape[-1]) + nothing
    out = parts[0].new_zeros(B * N, *parts[0].shape[1:])
    out = out.index_copy(0, torch.cat(places), torch.cat(parts))
    return out.unflatten(0, (B, N)).transpose(1, 2)
