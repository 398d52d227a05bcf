"""cosFormer (Qin et al. 2022, "cosFormer: Rethinking Softmax in Attention", eq. 7, 10, 11).

    w_ij = (ReLU(q_i)·ReLU(k_j)) · cos(π/2 · (p_i − p_j)/M),    o_i = Σ_j w_ij v_j / Σ_j w_ij

By cos(a − b) = cos a cos b + sin a sin b this is a linear attention with 2d features: time
O(n·2d·d_v), state 2d·d_v + 2d numbers a head.

What differs from the authors' code, and why:

* M, the horizon, is part of the model. They take the padded length of the batch, so that a row's
  output depends on its batch-mates and no step-by-step decoding exists.
* Padding is masked and positions count real tokens; they ignore padding.
* Beyond M the cosine turns negative and the denominator can vanish, so a position p ≥ M is an
  error.
* Angles are computed in fp32; an index in bf16 has only 364 distinct values of 512.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from hf_linear_attn.attention.base import Tokens
from hf_linear_attn.attention.documents import document_lengths
from hf_linear_attn.attention.kernelized import KernelizedAttention
from hf_linear_attn.attention.value_checks import any_wrong


class CosformerAttention(KernelizedAttention):
    """cosFormer attention.

    Args:
        cos_horizon: M in tokens; "length" = the number of real tokens of each row or document
            (bidirectional self-attention only, the paper's way); None = max_position_embeddings.
        max_position_embeddings: M where cos_horizon is None.
        cos_reweighting: False leaves plain ReLU attention (the paper's ablation).
        feature_map: "relu", or "elu_plus_one" (the paper's ablation).
        chunk_size, attention_eps, rotary, check_inputs: see `KernelizedAttention`.
    """

    feature_maps = ("relu", "elu_plus_one")

    def __init__(
        self,
        *,
        cos_horizon: int | Literal["length"] | None = None,
        max_position_embeddings: int = 512,
        cos_reweighting: bool = True,
        feature_map: str | None = None,
        chunk_size: int = 64,
        attention_eps: float = 1e-6,
        rotary: nn.Module | None = None,
        check_inputs: bool = True,
    ):
        super().__init__(
            feature_map=feature_map,
            chunk_size=chunk_size,
            attention_eps=attention_eps,
            rotary=rotary,
            check_inputs=check_inputs,
        )
        horizon = max_position_embeddings if cos_horizon is None else cos_horizon
        counted = isinstance(horizon, int) and horizon >= 1
        if not counted and horizon != "length":
            raise ValueError(
                f"cos_horizon is {horizon!r}; accepted: a number of tokens from 1 on, 'length' "
                "(encoders: each row's real length), or None (max_position_embeddings)."
            )
        self.cos_horizon = horizon
        self.cos_reweighting = cos_reweighting
        self.uses_positions = cos_reweighting
        if horizon == "length" and cos_reweighting:
            self.supports_causal = False
            self.no_causal_reason = (
                "with cos_horizon='length' the weight of a pair would depend on tokens that come "
                "later; give cos_horizon a number of tokens"
            )

    def check_positions(
        self, positions: Tensor, mask: Tensor | None, segments: Tensor | None
    ) -> None:
        """See `Attention.check_positions`: 0 ≤ p < M."""
        if not self.cos_reweighting:
            return
        horizon = self._horizon(positions.shape[1], mask, segments)
        wrong = (positions < 0) | (positions >= horizon)
        if mask is not None:
            wrong = wrong & mask
        if any_wrong(wrong, "a position is outside cosFormer's horizon (cos_horizon)"):
            found = int(positions.expand_as(wrong)[wrong][0])
            raise ValueError(
                f"position {found} is outside cosFormer's horizon of {self._horizon_in_words()}: "
                "positions run from 0 to horizon - 1, beyond it weights turn negative. Shorten "
                "the input, or build the model with a larger cos_horizon (another horizon is "
                "another model: train it with the one it will be used with)."
            )

    def _horizon_in_words(self) -> str:
        if self.cos_horizon == "length":
            return "each row's real length"
        return f"{self.cos_horizon} tokens (cos_horizon, by default max_position_embeddings)"

    def angles(self, tokens: Tokens, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """π/2 · p/M for queries and keys."""
        if not self.cos_reweighting:
            return None
        assert tokens.query_positions is not None
        assert tokens.key_positions is not None
        self._check_length_mode(tokens)
        length = tokens.key_positions.shape[1]
        horizon = self._horizon(length, tokens.key_mask, tokens.key_segments)
        queries, keys = (
            p.to(dtype) * (math.pi / 2) / horizon
            for p in (tokens.query_positions, tokens.key_positions)
        )
        return queries, keys

    def _horizon(self, length: int, mask: Tensor | None, segments: Tensor | None) -> int | Tensor:
        """M: one number, or int (batch, length) where documents differ in length."""
        if self.cos_horizon != "length":
            return int(self.cos_horizon)
        if mask is None and segments is None:
            return length
        return document_lengths(mask, segments)

    def _check_length_mode(self, tokens: Tokens) -> None:
        if self.cos_horizon != "length":
            return
        assert tokens.query_positions is not None
        assert tokens.key_positions is not None
        n, m = tokens.query_positions.shape[1], tokens.key_positions.shape[1]
        if n != m:
            raise ValueError(
                f"cos_horizon='length' needs queries and keys of one length; got {n} and {m}."
            )
