"""Rotations of queries and keys by their positions: RoPE and LRPE.

Pairs are half-split, Hugging Face's convention: coordinate t turns with t + d/2. Nothing is
registered that positions determine; cosines are computed in fp32 in the forward pass.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hf_linear_attn.attention.rope_scaling import check_rope, scale_frequencies
from hf_linear_attn.ops.operands import accumulation_dtype


def _frequencies(head_dim: int, theta: float, dtype=torch.float32, device=None) -> Tensor:
    exponent = torch.arange(0, head_dim, 2, dtype=dtype, device=device) / head_dim
    # Not theta**-exponent: as Transformers rounds it, for a last bit is multiplied by the position.
    return 1.0 / theta**exponent


def _turn(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Rotate x (batch, heads, seq, head_dim) by positions (batch or 1, seq) × frequencies."""
    dtype = accumulation_dtype(x)
    angles = positions[:, None, :, None].to(dtype) * frequencies.to(dtype)
    cos, sin = angles.cos(), angles.sin()
    first, second = x.to(dtype).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def _check_head_dim(head_dim: int) -> None:
    if head_dim % 2:
        raise ValueError(f"a rotation needs an even head_dim; got {head_dim}.")


class RotaryEmbedding(nn.Module):
    """RoPE (Su et al. 2021, RoFormer): R(p) turns pair t by p·θ^(−2t/d).

    Args:
        head_dim: even.
        theta: base of the frequencies.
        scaling: how a longer context changes them, as a config's `rope_parameters`; None = not.
    """

    def __init__(
        self, head_dim: int, theta: float = 10000.0, scaling: Mapping[str, Any] | None = None
    ):
        super().__init__()
        _check_head_dim(head_dim)
        check_rope(scaling or {})
        self.head_dim, self.theta, self.scaling = head_dim, theta, dict(scaling or {})

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (batch, heads, seq, head_dim), positions int (batch or 1, seq) -> like x."""
        dtype = accumulation_dtype(x)
        frequencies = _frequencies(self.head_dim, self.theta, dtype, x.device)
        return _turn(x, positions, scale_frequencies(frequencies, self.scaling))


class LRPE(nn.Module):
    """Linearised relative position encoding of TransNormer: x ← R_θ(p)(I − 2uuᵀ)x.

    u is a fixed random unit vector, saved with the model; the frequencies θ are learned and begin
    as RoPE's (Qin et al. 2022, 2210.10340; "urpe core 1, p 3" of the authors' code). Both stay
    fp32 in a 16-bit model.

    Args:
        head_dim: even.
    """

    reflection: Tensor

    def __init__(self, head_dim: int):
        super().__init__()
        _check_head_dim(head_dim)
        self.head_dim = head_dim
        self.theta = nn.Parameter(self.initial_theta())
        self.register_buffer("reflection", self.random_reflection())

    def initial_theta(self) -> Tensor:
        """Frequencies at the start, fp32 (head_dim / 2,)."""
        return _frequencies(self.head_dim, 10000.0)

    def random_reflection(self) -> Tensor:
        """A random unit vector u, fp32 (head_dim,)."""
        # Of no other type, whatever the default is: models are built in 16 bits, too.
        drawn = torch.randn(self.head_dim, dtype=torch.float32)
        return nn.functional.normalize(drawn, dim=0)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (batch, heads, seq, head_dim), positions int (batch or 1, seq) -> like x."""
        u = self.reflection.to(accumulation_dtype(x))
        # A product and a sum: autocast would round a matrix product.
        reflected = x - 2 * (x * u).sum(-1, keepdim=True) * u
        return _turn(reflected, positions, self.theta).to(x.dtype)

    def _apply(self, fn, recurse=True):
        """Follow a change of device or to fp64, but stay out of 16 bits.

        An angle is position times θ: at position 500 a θ rounded to bf16 is another function.
        """

        def keep(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            if moved.is_floating_point() and moved.dtype.itemsize < tensor.dtype.itemsize:
                return tensor.to(moved.device)
            return moved

        return super()._apply(keep, recurse)
