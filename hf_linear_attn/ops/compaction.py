"""Real tokens first: a row's padding moved to its end, and back."""

import torch
from torch import Tensor


class Compaction:
    """Reorders the tokens of every row so that the real ones come first, in their order.

    Args:
        mask: bool (B, N), True = real token.
    """

    def __init__(self, mask: Tensor):
        self.order = torch.argsort(mask.logical_not().to(torch.uint8), dim=1, stable=True)
        self.inverse = torch.argsort(self.order, dim=1)
        counts = mask.sum(1, keepdim=True)
        self.real = torch.arange(mask.shape[1], device=mask.device) < counts
        """the mask after the reordering"""

    def pack(self, x: Tensor, dim: int) -> Tensor:
        """x (B or 1, …) with tokens along `dim` -> real tokens first, (B, …)."""
        return _take(x, self.order, dim)

    def unpack(self, x: Tensor, dim: int) -> Tensor:
        """Undo `pack`."""
        return _take(x, self.inverse, dim)


def _take(x: Tensor, order: Tensor, dim: int) -> Tensor:
    shape = [1] * x.ndim
    shape[0], shape[dim] = order.shape
    # The index is expanded, never copied.
    return torch.gather(
        x.expand(order.shape[0], *x.shape[1:]),
        dim,
        order.view(shape).expand(order.shape[0], *x.shape[1:]),
    )
