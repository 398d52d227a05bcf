"""What the forward and the backward pass of linear attention hand to each other, on any backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class Settings:
    """Arguments of `linear_attention` that are no tensors."""

    feature_map: str
    causal: bool
    normalize: bool
    chunk_size: int
    eps: float


class Inputs(NamedTuple):
    """Tensor arguments of `linear_attention`."""

    q: Tensor
    k: Tensor
    v: Tensor
    state: Tensor | None
    q_angles: Tensor | None
    k_angles: Tensor | None
    key_mask: Tensor | None
    segments: Tensor | None


class Kept(NamedTuple):
    """What the backward pass needs of the forward pass."""

    out: Tensor
    """(B, H, N, Dv), in v's dtype"""
    total: Tensor | None
    """the normaliser (B, G, r, N, 1) in the accumulation dtype, with normalize"""
    rest: Tensor | None
    """what rounding took from a 16-bit output, (B, G, r, N, Dv) in v's dtype, with normalize"""
    states: Sequence[Tensor | None] | None
    """states, as the pass that made them lays them out; None in all = computed again"""


Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""of q, k, v and the state (None without one)"""
