"""Root-mean-square norms, with and without weights."""

import torch
from torch import Tensor, nn


class SimpleRMSNorm(nn.Module):
    """x · rsqrt(mean(x²) + eps) over the last dimension, in fp32, without weights.

    The eps stands inside the root: outside it, the gradient at a zero row is 1/eps.
    """

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) -> (…, width) in x's dtype."""
        y = x.double() if x.dtype == torch.float64 else x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class RMSNorm(SimpleRMSNorm):
    """RMS norm with a weight (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float):
        super().__init__(eps)
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) -> (…, width)."""
        return self.weight * super().forward(x)


class WidthNorm(nn.Module):
    """A norm over all heads side by side.

    Args:
        norm: acts on the last dimension, of size heads · head_dim.
    """

    def __init__(self, norm: nn.Module):
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """(batch, heads, seq, head_dim) -> like x."""
        heads = x.shape[1]
        wide = self.norm(x.transpose(1, 2).flatten(2))
        return wide.unflatten(2, (heads, -1)).transpose(1, 2)


class PlainLayerNorm(nn.Module):
    """Layer norm without weights, over a last dimension of any size."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(…, width) -> (…, width)."""
        return nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)


_WIDTH_NORMS = {"srmsnorm": SimpleRMSNorm, "layernorm": PlainLayerNorm}


def width_norm(name: str, eps: float) -> WidthNorm:
    """TransNormer's XNorm by name: "srmsnorm" or "layernorm", without weights.

    Raises:
        ValueError: another name.
    """
    if name not in _WIDTH_NORMS:
        raise ValueError(f"xnorm is {name!r}; accepted: {', '.join(map(repr, _WIDTH_NORMS))}.")
    return WidthNorm(_WIDTH_NORMS[name](eps))
