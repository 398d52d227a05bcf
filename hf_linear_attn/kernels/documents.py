"""Which document a state belongs to, at each border of chunks."""

import torch
from torch import Tensor


def carried_documents(segments: Tensor, mask: Tensor | None, chunk: int) -> tuple[Tensor, Tensor]:
    """The document of the prefix and of the suffix state at each border, int64 (B, chunks + 1).

    A prefix state belongs to the document of the last real key before the border, a suffix state to
    that of the first one behind it (as in `hf_linear_attn.ops.documents`).

    Args:
        segments: int (B, N); documents are contiguous.
        mask: bool (B, N), True = real token, or None.
        chunk: tokens of a chunk.
    """
    B, N = segments.shape
    segments = segments.long()
    index = torch.arange(N, device=segments.device).expand(B, N)
    last, first = index, index
    if mask is not None:
        last = torch.where(mask, index, -1).cummax(1).values
        first = torch.where(mask, index, N).flip(1).cummin(1).values.flip(1)
    borders = torch.arange(0, N + chunk, chunk, device=segments.device).clamp_max(N).expand(B, -1)
    before = last.gather(1, (borders - 1).clamp_min(0)).masked_fill(borders == 0, -1)
    behind = first.gather(1, borders.clamp_max(N - 1)).masked_fill(borders == N, N)
    return segments.gather(1, before.clamp_min(0)), segments.gather(1, behind.clamp_max(N - 1))
