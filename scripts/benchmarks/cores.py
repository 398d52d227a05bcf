"""Attention as the suites call it: queries, keys and values in, the output out."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.bench import Settings
from hf_linear_attn.ops.linear_attention import linear_attention
from hf_linear_attn.ops.nystrom_attention import nystrom_attention

Core = Callable[..., Tensor]
LANDMARKS = 64


@dataclass(frozen=True)
class Inputs:
    """Contiguous leaves (batch, heads, seq, head_dim), and a gradient of the output alike."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor

    @property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        """What gradients are taken of."""
        return self.q, self.k, self.v

    def to(self, dtype: torch.dtype) -> "Inputs":
        """The same numbers, rounded to another dtype, as leaves of their own."""
        q, k, v = (x.detach().to(dtype).requires_grad_() for x in self.leaves)
        return Inputs(q, k, v, self.grad.to(dtype))


def draw(settings: Settings, length: int, heads: int | None = None) -> Inputs:
    """Standard normal inputs from the run's seed.

    Args:
        settings: of the run.
        length: in tokens.
        heads: None = as in the settings.
    """
    generator = torch.Generator(settings.device).manual_seed(settings.seed)
    shape = (settings.batch, heads or settings.heads, length, settings.head_dim)
    q, k, v, grad = (
        torch.randn(shape, generator=generator, device=settings.device, dtype=settings.dtype)
        for _ in range(4)
    )
    return Inputs(q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad)


def softmax(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """The baseline: PyTorch's fused attention, no mask, no dropout."""
    return scaled_dot_product_attention(q, k, v, is_causal=causal)


def eager_softmax(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Softmax attention by its formula: the matrix of all pairs is formed and kept."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(above, -math.inf)
    return scores.softmax(-1) @ v


def linear_transformer(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Linear Transformer, elu(x) + 1."""
    return linear_attention(q, k, v, causal=causal, feature_map="elu_plus_one")[0]


def cosformer(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, key_mask: Tensor | None = None,
    segments: Tensor | None = None, recompute_states: bool = False,
) -> Tensor:  # fmt: skip
    """cosFormer whose horizon is the length, angles included."""
    angles = horizon_angles(q.shape[2], q.shape[2], q.device)
    return linear_attention(
        q, k, v, causal=causal, feature_map="relu", q_angles=angles, k_angles=angles,
        key_mask=key_mask, segments=segments, recompute_states=recompute_states,
    )[0]  # fmt: skip


def horizon_angles(length: int, horizon: int, device: torch.device) -> Tensor:
    """π/2 · p/M of the positions 0, 1, …, fp32 (1, length)."""
    return torch.arange(length, dtype=torch.float32, device=device)[None] * (math.pi / 2 / horizon)


def nystrom(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """Nyström attention without a convolution, which has no causal form."""
    assert not causal
    return nystrom_attention(q, k, v, num_landmarks=LANDMARKS).to(v.dtype)


CAUSAL: dict[str, Core] = {"cosformer": cosformer, "linear_transformer": linear_transformer}
BIDIRECTIONAL: dict[str, Core] = {**CAUSAL, "nystrom": nystrom}


def forward_backward(core: Core, inputs: Inputs, **keywords: Any) -> Callable[[], object]:
    """A call that computes the output and the gradients of q, k and v."""

    def step() -> object:
        out = core(*inputs.leaves, **keywords)
        return torch.autograd.grad(out, inputs.leaves, inputs.grad)

    return step
