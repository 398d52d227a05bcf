"""Attention through a feature map: o_i = Σ_j w_ij v_j / Σ_j w_ij with w_ij = φ(q_i)·φ(k_j).

A mechanism of this family says which map φ it uses and, where it re-weights by distance, the angle
of each token. With a rotary embedding the rotation R acts after the map, and only in the numerator:

    o_i = Σ_j (R_i φ(q_i))·(R_j φ(k_j)) v_j / Σ_j φ(q_i)·φ(k_j)

because a rotated denominator can vanish (Su et al. 2021, RoFormer, eq. 19).
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hf_linear_attn.attention.base import Attention, Tokens
from hf_linear_attn.ops.feature_maps import get_feature_map
from hf_linear_attn.ops.linear_attention import linear_attention
from hf_linear_attn.ops.normaliser import divide
from hf_linear_attn.ops.operands import accumulation_dtype


class KernelizedAttention(Attention):
    """Linear attention with an elementwise feature map.

    Args:
        feature_map: name of φ, one of the class's `feature_maps`; None = the first of them.
        chunk_size: tokens handled at once in the causal and the packed form.
        attention_eps: lower bound of the normaliser.
        rotary, check_inputs: see `Attention`.

    The state is fp32 (batch, kv_heads, features, value_dim + 1); its last column sums φ(k) alone
    and is absent where nothing is normalised.
    """

    cache_kind = "recurrent state"
    feature_maps: ClassVar[tuple[str, ...]]
    normalize: ClassVar[bool] = True
    """divide by the sum of the weights"""

    def __init__(
        self,
        *,
        feature_map: str | None = None,
        chunk_size: int = 64,
        attention_eps: float = 1e-6,
        rotary: nn.Module | None = None,
        check_inputs: bool = True,
    ):
        super().__init__(rotary=rotary, check_inputs=check_inputs)
        name = self.feature_maps[0] if feature_map is None else feature_map
        if name not in self.feature_maps:
            raise ValueError(
                f"feature_map is {name!r}; {type(self).__name__} accepts "
                f"{', '.join(map(repr, self.feature_maps))}."
            )
        if chunk_size < 1 or attention_eps <= 0:
            raise ValueError(
                f"chunk_size must be at least 1 and attention_eps above 0; got {chunk_size} and "
                f"{attention_eps}."
            )
        self.feature_map = name
        self.chunk_size = chunk_size
        self.attention_eps = attention_eps

    def angles(self, tokens: Tokens, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Angles of queries and keys, (batch or 1, len) radians: w_ij gets cos(a_i − b_j)."""
        return None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `Attention.attend`."""
        if state is not None and not tokens.causal:
            raise ValueError("a state is carried by causal attention only; got causal=False.")
        if state is not None and tokens.key_segments is not None:
            raise ValueError("a state cannot be carried into packed documents; drop one of them.")
        self._check_same_documents(tokens)
        angles = self.angles(tokens, accumulation_dtype(query, key, value)) or (None, None)
        if self.rotary is not None:
            return self._attend_rotated(query, key, value, tokens, state, angles)
        return linear_attention(
            query, key, value, feature_map=self.feature_map, state=state,
            **self._common(tokens, angles),
        )  # fmt: skip

    def _common(self, tokens: Tokens, angles) -> dict[str, Any]:
        return {
            "normalize": self.normalize,
            "causal": tokens.causal,
            "q_angles": angles[0],
            "k_angles": angles[1],
            "key_mask": tokens.key_mask,
            "segments": tokens.key_segments,
            "chunk_size": self.chunk_size,
            "eps": self.attention_eps,
        }

    def _attend_rotated(
        self, query, key, value, tokens: Tokens, state: Tensor | None, angles
    ) -> tuple[Tensor, Tensor | None]:
        """Numerator with rotated features, denominator without."""
        assert self.rotary is not None
        dtype = accumulation_dtype(query, key, value)
        phi = get_feature_map(self.feature_map).forward
        if tokens.key_mask is not None:
            key = key.masked_fill(~tokens.key_mask[:, None, :, None], 0)
        q, k, v = phi(query.to(dtype)), phi(key.to(dtype)), value.to(dtype)
        shared: dict[str, Any] = {**self._common(tokens, angles), "normalize": False}
        top_state, low_state = state, None
        if state is not None and self.normalize:
            top_state, low_state = state[..., :-1], state[..., -1:]
        top, top_state = linear_attention(
            self.rotary(q, tokens.query_positions), self.rotary(k, tokens.key_positions), v,
            state=top_state, **shared,
        )  # fmt: skip
        if not self.normalize:
            return top.to(value.dtype), top_state
        low, low_state = linear_attention(
            q, k, v.new_ones(*v.shape[:-1], 1), state=low_state, **shared
        )
        if top_state is not None and low_state is not None:
            state = torch.cat((top_state, low_state), dim=-1)
        return divide(top, low, self.attention_eps).to(value.dtype), state
