"""Queries, keys and values of a span of the sequence: cast, mapped, masked, re-weighted on demand.

Letters of the shapes: B batch, G key/value heads, r query heads a key/value head, N query length,
M key length, D head size, F features (D, or 2D with angles), E value columns, n tokens of a span.
Matrix products run on (B·G, rows, columns); a span of queries has r·n rows, ordered head by head.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hf_linear_attn.ops.feature_maps import FeatureMap


def accumulation_dtype(*tensors: Tensor) -> torch.dtype:
    """fp64 if any input is, else fp32: what sums, states, normalisers and angles are held in."""
    double = any(x.dtype == torch.float64 for x in tensors)
    return torch.float64 if double else torch.float32


_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def real_bits(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Bool mask, True = real, to integers as wide as `dtype`: all bits set, or none."""
    return mask.to(_BITS[dtype]).neg_()


def blanked(x: Tensor, bits: Tensor) -> Tensor:
    """x with exact zeros where there are no bits, whatever stands there (even NaN).

    A multiplication would let NaN through, and `masked_fill` takes six times as long.

    Args:
        x: fp32 or fp64.
        bits: of `real_bits`, broadcast to x.
    """
    return torch.bitwise_and(x.view(bits.dtype), bits).view(x.dtype)


def add_product(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """x + left · right, in place. PyTorch's counter of operations does not see `baddbmm_`."""
    return torch.baddbmm(x, left, right, out=x)


@dataclass(frozen=True)
class Span:
    """Feature rows of one span. `raw` and `mapped` are kept for the derivative of the map."""

    raw: Tensor
    """the input in the accumulation dtype"""
    mapped: Tensor
    """φ(input), pads zero"""
    flat: Tensor
    """`mapped` as (B·G, rows, D)"""
    wide: Tensor
    """with angles: [φ cos, φ sin] as (B·G, rows, 2D); else `flat`"""


class Rows:
    """One side (queries or keys) of a linear attention.

    Args:
        x: (B, G, r, length, D); r = 1 for keys.
        feature_map: the map φ.
        angles: (B or 1, length) radians, or None.
        mask: bool (B, length), True = real token, or None.
        dtype: accumulation dtype.
    """

    def __init__(
        self,
        x: Tensor,
        feature_map: FeatureMap,
        angles: Tensor | None,
        mask: Tensor | None,
        dtype: torch.dtype,
    ):
        self.x, self.feature_map, self.dtype = x, feature_map, dtype
        self.length = x.shape[3]
        self.real = None if mask is None else real_bits(mask, dtype)[:, None, None, :, None]
        """bits of the tokens that are no pads, (B, 1, 1, length, 1)"""
        self.turn: tuple[Tensor, Tensor] | None = None
        """cos and sin of the angles, (B or 1, 1, 1, length, 1)"""
        if angles is not None:
            angles = angles.to(dtype)[:, None, None, :, None]
            self.turn = angles.cos(), angles.sin()

    def _flatten(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0] * x.shape[1], -1, x.shape[-1])

    def span(self, start: int, stop: int) -> Span:
        """The features of tokens start..stop-1."""
        raw = self.x[:, :, :, start:stop].to(self.dtype)
        mapped = self.feature_map.forward(raw)
        if self.real is not None:
            mapped = blanked(mapped, self.real[:, :, :, start:stop])
        flat = self._flatten(mapped)
        if self.turn is None:
            return Span(raw, mapped, flat, flat)
        wide = mapped.new_empty(*mapped.shape[:-1], 2, mapped.shape[-1])
        for half, turn in enumerate(self.turn):
            torch.mul(mapped, turn[:, :, :, start:stop], out=wide[..., half, :])
        return Span(raw, mapped, flat, wide.view(*flat.shape[:2], -1))

    def pull(
        self, grad: Tensor | None, left: Tensor, right: Tensor, start: int, stop: int
    ) -> Tensor:
        """`grad` + (left · right taken back from `wide` to `flat`), in place.

        Args:
            grad: gradient of `flat` so far, (B·G, rows, D), or None.
            left, right: (B·G, rows, E) and (B·G, E, F), whose product is a gradient of `wide`.
            start, stop: the span.
        """
        if self.turn is None:
            return torch.bmm(left, right) if grad is None else add_product(grad, left, right)
        B, G, r, _, D = self.x.shape
        halves = torch.bmm(left, right).view(B, G, r, stop - start, 2, D)
        cos, sin = (turn[:, :, :, start:stop] for turn in self.turn)
        if grad is None:
            grad = self._flatten(halves[..., 0, :] * cos)
        else:
            grad.view(halves[..., 0, :].shape).addcmul_(halves[..., 0, :], cos)
        grad.view(halves[..., 1, :].shape).addcmul_(halves[..., 1, :], sin)
        return grad

    def store_grad(self, grad: Tensor, span: Span, start: int, stop: int, out: Tensor) -> None:
        """Gradient of `flat` -> gradient of the input, written into `out` (like `x`)."""
        grad = self.feature_map.backward(grad.view(span.raw.shape), span.raw, span.mapped)
        if self.real is not None:
            grad = blanked(grad, self.real[:, :, :, start:stop])
        out[:, :, :, start:stop] = grad


class ValueSpan(NamedTuple):
    """The values of one span."""

    plain: Tensor
    """(B·G, n, Dv), pads zero"""
    full: Tensor
    """(B·G, n, E): `plain` with the column of ones, if there is one"""


class Values:
    """The value side: (B, G, M, Dv), and a column of ones where a normaliser is wanted.

    A product whose result is Dv columns wide is a good deal faster than one of Dv + 1 columns, so
    the column of ones goes only where it is summed over, or becomes a row.
    """

    def __init__(self, v: Tensor, mask: Tensor | None, dtype: torch.dtype, ones: bool):
        self.v, self.dtype, self.ones = v, dtype, ones
        self.real = None if mask is None else real_bits(mask, dtype)[:, None, :, None]

    def span(self, start: int, stop: int) -> ValueSpan:
        """Values of tokens start..stop-1."""
        v = self.v[:, :, start:stop].to(self.dtype)
        if self.real is not None:
            v = blanked(v, self.real[:, :, start:stop])
        plain = v.reshape(-1, *v.shape[2:])
        if not self.ones:
            return ValueSpan(plain, plain)
        ones = plain.new_ones(1, 1, 1).expand(*plain.shape[:2], 1)
        return ValueSpan(plain, torch.cat((plain, ones), dim=-1))
