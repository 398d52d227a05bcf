"""TransNormer (Qin et al. 2022, "The Devil in Linear Transformer", 2210.10340).

NormAttention: linear attention without a denominator, whose gradients are unbounded where it nears
0; a norm over the whole width of the model (all heads side by side) takes its place.

    O_h = φ(Q_h)(φ(K_h)ᵀ V_h),    out = XNorm([O_1 … O_H]),    XNorm(x) = x / √(mean x² + ε)

DiagAttention: exact attention inside blocks of w tokens, against the dilution of local weights.

    A = softmax(QKᵀ/√d) inside a block (T2), or A = ReLU(QKᵀ/√d) and a norm behind A V (T1)

φ = elu (T1) or 1 + elu (T2); no scale 1/√d in NormAttention. Time O(n·d·d_v) and O(n·w·d); state
d·d_v numbers a head, and one block of keys and values. The paper's trunk has DiagAttention in the
first half of its layers and NormAttention in the second.

What differs from the authors' code, and why:

* Padding is masked and blocks are counted from the first real token; they ignore padding.
* Tokens missing from an incomplete block take no weight; they fill it with zero keys, which do.
* The causal form runs in linear time, with a state; theirs forms n × n weights.
* ε stands inside the root: outside it the gradient at a zero row is 1/ε, and NaN in fp16.
* Sums and positions are fp32; in bf16 an index above 256 is no longer exact.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hf_linear_attn.attention.base import Attention, Tokens
from hf_linear_attn.attention.documents import document_starts, fill_pads
from hf_linear_attn.attention.dropout import check_dropout
from hf_linear_attn.attention.kernelized import KernelizedAttention
from hf_linear_attn.attention.norms import width_norm
from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.ops.block_attention import BlockWeights, block_attention
from hf_linear_attn.ops.block_window import next_position
from hf_linear_attn.ops.operands import accumulation_dtype

Version = Literal["t1", "t2"]
_VERSIONS = ("t1", "t2")


def _check_version(version: str) -> None:
    if version not in _VERSIONS:
        raise ValueError(
            f"transnormer_version is {version!r}; accepted: {', '.join(map(repr, _VERSIONS))}."
        )


class TransNormerNormAttention(KernelizedAttention):
    """NormAttention.

    Args:
        transnormer_version: "t2" (φ = 1 + elu) or "t1" (φ = elu: weights may be negative).
        xnorm: "srmsnorm" (the paper's), or "layernorm"; both over all heads, without weights.
        attention_eps: ε of the norm.
        chunk_size, rotary, check_inputs: see `KernelizedAttention`.

    The state is fp32 (batch, kv_heads, head_dim, value_dim).
    """

    feature_maps = ("elu_plus_one", "elu")
    normalize = False

    def __init__(
        self,
        *,
        transnormer_version: Version = "t2",
        xnorm: Literal["srmsnorm", "layernorm"] = "srmsnorm",
        chunk_size: int = 64,
        attention_eps: float = 1e-6,
        rotary: nn.Module | None = None,
        check_inputs: bool = True,
    ):
        _check_version(transnormer_version)
        super().__init__(
            feature_map="elu" if transnormer_version == "t1" else "elu_plus_one",
            chunk_size=chunk_size,
            attention_eps=attention_eps,
            rotary=rotary,
            check_inputs=check_inputs,
        )
        self.norm = width_norm(xnorm, attention_eps)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `Attention.attend`."""
        dtype = accumulation_dtype(query, key, value)
        if tokens.query_mask is not None:
            # The norm's gradient at a pad would carry on what stands there, were it not a number.
            query = query.masked_fill(~tokens.query_mask[:, None, :, None], 0)
        # The sums leave the range of fp16: they are normed before they are rounded.
        out, state = super().attend(query, key, value.to(dtype), tokens, state)
        return self.norm(out).to(value.dtype), state

    def pair_weights(self, query: Tensor, key: Tensor, tokens: Tokens) -> Tensor:
        """See `Attention.weights`: φ(q_i)·φ(k_j) as it is, for nothing normalises a row."""
        units = self._units(query, key)
        return super().attend(query, key, units, tokens, None)[0]


class TransNormerDiagAttention(Attention):
    """DiagAttention: softmax (T2) or ReLU (T1) attention inside blocks of tokens.

    Args:
        block_size: w, tokens a block, counted from the first real token of each document.
        transnormer_version: "t2" (softmax) or "t1" (ReLU, and a norm as behind NormAttention).
        xnorm, attention_eps: of T1's norm; see `TransNormerNormAttention`.
        attention_probs_dropout_prob: dropout on the weights, in training.
        rotary: turns by the position inside the block.
        check_inputs: see `Attention`.

    The state is fp32 (batch, kv_heads, block_size, head_dim + value_dim + 1): the block being
    filled, see `block_attention`.
    """

    cache_kind = "block window"
    supports_dropout = True
    uses_positions = True

    def __init__(
        self,
        *,
        block_size: int = 64,
        transnormer_version: Version = "t2",
        xnorm: Literal["srmsnorm", "layernorm"] = "srmsnorm",
        attention_eps: float = 1e-6,
        attention_probs_dropout_prob: float = 0.0,
        rotary: nn.Module | None = None,
        check_inputs: bool = True,
    ):
        super().__init__(rotary=rotary, check_inputs=check_inputs)
        _check_version(transnormer_version)
        if block_size < 1 or attention_eps <= 0:
            raise ValueError(
                f"block_size must be at least 1 and attention_eps above 0; got {block_size} and "
                f"{attention_eps}."
            )
        check_dropout(attention_probs_dropout_prob)
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.block_size = block_size
        relu = transnormer_version == "t1"
        self.activation: BlockWeights = "relu" if relu else "softmax"
        norm = width_norm(xnorm, attention_eps)
        self.norm = norm if relu else None

    def check_positions(
        self, positions: Tensor, mask: Tensor | None, segments: Tensor | None
    ) -> None:
        """See `Attention.check_positions`: p ≥ 0, rising inside a document."""
        real = positions.new_ones(positions.shape, dtype=torch.bool) if mask is None else mask
        p = positions.expand(torch.broadcast_shapes(positions.shape, real.shape))
        negative = real & (p < 0)
        if segments is not None:
            # Every document counts for itself: lift it above all before it.
            starts = document_starts(fill_pads(segments, mask))[:, 1:].long().cumsum(1)
            p = p.expand(segments.shape) + pad(starts, (1, 0)) * (p.max() + 2)
        highest = p.masked_fill(~real, -1).cummax(1).values
        # Shifted by rolling: a graph would take "one token less" for "more than two tokens".
        first = torch.arange(p.shape[1], device=p.device) == 0
        falls = real & ~first & (p <= highest.roll(1, dims=1))
        message = (
            "blocks need positions that start at 0 or above and rise with every real token of a "
            "document; got positions that do not. Leave them out to have them counted."
        )
        if any_wrong(falls, message) or any_wrong(negative, message):
            raise ValueError(message)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `Attention.attend`."""
        dropout = self.attention_probs_dropout_prob if self.training else 0.0
        out, state = self._mix(query, key, value, tokens, state, dropout)
        if self.norm is not None:
            out = self.norm(out)
        return out.to(value.dtype), state

    def pair_weights(self, query: Tensor, key: Tensor, tokens: Tokens) -> Tensor:
        """See `Attention.weights`: 0 between blocks."""
        return self._mix(query, key, self._units(query, key), tokens, None, dropout=0.0)[0]

    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, state: Tensor | None,
        dropout: float,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        positions = tokens.key_positions
        assert positions is not None
        self._check_self_attention(query, key, tokens)
        if self.check_inputs and state is not None:
            self._check_rising(positions, tokens.key_mask, state)
        if self.rotary is not None:
            dtype = accumulation_dtype(query, key, value)
            local = positions.remainder(self.block_size)
            query, key = (self.rotary(x.to(dtype), local) for x in (query, key))
        return block_attention(
            query, key, value, positions, causal=tokens.causal, block_size=self.block_size,
            weights=self.activation, key_mask=tokens.key_mask, segments=tokens.key_segments,
            state=state, dropout=dropout,
            aligned=tokens.counted and state is None and tokens.key_segments is None,
        )  # fmt: skip

    def _check_rising(self, positions: Tensor, mask: Tensor | None, state: Tensor) -> None:
        taken = positions < next_position(state)[:, None]
        message = "positions fall behind those in the state; a block holds one token a position."
        if any_wrong(taken if mask is None else taken & mask, message):
            raise ValueError(message)
