"""Softmax over the allowed entries of a row."""

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the last dimension; 0 where not allowed, and in rows where nothing is.

    Args:
        scores: float (…, n, m).
        allowed: bool, broadcast to scores, or None = all.
    """
    if allowed is None:
        return scores.softmax(-1)
    # A softmax over nothing is NaN: let such rows look anywhere and clear them after.
    open_rows = allowed | ~allowed.any(-1, keepdim=True)
    return scores.masked_fill(~open_rows, -torch.inf).softmax(-1).masked_fill(~allowed, 0)
