"""Parts of the trunk: norms, MLPs, position embeddings, self-attention, the block."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from hf_linear_attn.attention.norms import RMSNorm, SimpleRMSNorm
from hf_linear_attn.attention.registry import build_attention
from hf_linear_attn.attention.rotary import LRPE, RotaryEmbedding
from hf_linear_attn.hf_internals import GradientCheckpointingLayer
from hf_linear_attn.models.cache_step import CacheStep
from hf_linear_attn.models.configuration import LinearAttnConfig


def build_norm(config: LinearAttnConfig, width: int | None = None) -> nn.Module:
    """The norm that `norm_type` names, over `width` (hidden_size by default)."""
    width = config.hidden_size if width is None else width
    if config.norm_type == "layernorm":
        return nn.LayerNorm(width, eps=config.norm_eps)
    if config.norm_type == "rmsnorm":
        return RMSNorm(width, config.norm_eps)
    return SimpleRMSNorm(config.norm_eps)


def activation(name: str) -> nn.Module:
    """An activation by Transformers' name, or "identity"."""
    return nn.Identity() if name == "identity" else ACT2FN[name]


class MLP(nn.Module):
    """down(act(up(x))), or with "glu" down(act(gate(x)) · up(x))."""

    def __init__(self, config: LinearAttnConfig):
        super().__init__()
        inner, bias = config.intermediate_size, config.mlp_bias
        self.up_proj = nn.Linear(config.hidden_size, inner, bias=bias)
        self.gate_proj = None
        if config.mlp_type == "glu":
            self.gate_proj = nn.Linear(config.hidden_size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, config.hidden_size, bias=bias)
        self.act = activation(config.glu_act or config.hidden_act)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (batch, seq, hidden)."""
        if self.gate_proj is None:
            return self.down_proj(self.act(self.up_proj(x)))
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class SinusoidalPositions(nn.Module):
    """Sines and cosines of the positions (Vaswani et al. 2017, §3.5), computed in fp32.

    The first half of the width holds sines, the second half cosines. The token embeddings beside
    them are multiplied by √width (§3.4).
    """

    def __init__(self, width: int):
        super().__init__()
        if width % 2:
            raise ValueError(
                f"position_embedding_type='sinusoidal' needs an even hidden_size; got {width}."
            )
        self.width = width

    def forward(self, positions: Tensor) -> Tensor:
        """int (batch or 1, seq) -> fp32 (batch or 1, seq, width)."""
        even = torch.arange(0, self.width, 2, dtype=torch.float32, device=positions.device)
        angles = positions[..., None].float() * 10000.0 ** (-even / self.width)
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


def build_rotary(config: LinearAttnConfig) -> nn.Module | None:
    """The rotation of queries and keys that `position_embedding_type` names, or None."""
    assert config.head_dim is not None
    if config.position_embedding_type == "rope":
        rope = config.rope_parameters or {}
        return RotaryEmbedding(config.head_dim, rope.get("rope_theta", config.default_theta), rope)
    if config.position_embedding_type == "lrpe":
        return LRPE(config.head_dim)
    return None


class SelfAttention(nn.Module):
    """Projections around the mechanism of one layer."""

    def __init__(self, config: LinearAttnConfig, layer_idx: int):
        super().__init__()
        assert config.head_dim is not None
        assert config.num_key_value_heads is not None
        self.layer_idx, self.is_causal = layer_idx, bool(config.is_decoder)
        self.head_dim, bias = config.head_dim, config.attention_bias
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=bias)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None
        name = config.attention_names[layer_idx]
        # The trunk looks at masks, positions and documents once for all layers.
        self.mechanism = build_attention(
            name, config.attention_settings(name), config=config, rotary=build_rotary(config),
            check_inputs=False,
        )  # fmt: skip

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))

    def forward(
        self, x: Tensor, tokens: dict[str, Any], cache: CacheStep | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """(batch, seq, hidden) -> (batch, seq, hidden), and the explicit weights or None.

        Args:
            x: float (batch, seq, hidden).
            tokens: the mechanism's keywords.
            cache: reads and fills the layer's cache, or None.
            output_attentions: form the weights (batch, heads, seq, seq), of these tokens alone.
        """
        q, k, v = (self._split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if cache is None:
            out, _ = self.mechanism(q, k, v, causal=self.is_causal, **tokens)
        else:
            out = cache.attend(self.mechanism, self.layer_idx, q, k, v, tokens)
        weights = None
        if output_attentions:
            weights = self.mechanism.weights(q, k, causal=self.is_causal, **tokens)
        return self.o_proj(out.transpose(1, 2).flatten(2)), weights


class LinearAttnBlock(GradientCheckpointingLayer):
    """Self-attention and MLP, each with residual, dropout and a norm before or behind it."""

    def __init__(self, config: LinearAttnConfig, layer_idx: int):
        super().__init__()
        self.self_attn = SelfAttention(config, layer_idx)
        self.mlp = MLP(config)
        self.attention_norm = build_norm(config)
        self.mlp_norm = build_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.pre_norm = config.norm_position == "pre"

    def forward(
        self, hidden_states: Tensor, tokens: dict[str, Any], cache: CacheStep | None = None,
        output_attentions: bool = False,
    ) -> Tensor:  # fmt: skip
        """(batch, seq, hidden) -> (batch, seq, hidden); arguments as in `SelfAttention.forward`."""
        x = hidden_states
        if self.pre_norm:
            mixed, _ = self.self_attn(self.attention_norm(x), tokens, cache, output_attentions)
            x = x + self.dropout(mixed)
            return x + self.dropout(self.mlp(self.mlp_norm(x)))
        mixed, _ = self.self_attn(x, tokens, cache, output_attentions)
        x = self.attention_norm(x + self.dropout(mixed))
        return self.mlp_norm(x + self.dropout(self.mlp(x)))
