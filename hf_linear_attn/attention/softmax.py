"""Softmax attention, the baseline: A = softmax(QKᵀ/√d) (Vaswani et al. 2017, eq. 1).

O(n²) time. The computation is Transformers' own: eager, SDPA or FlashAttention-2, so that a
comparison is with what people run. This is the one mechanism that touches Transformers.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from hf_linear_attn.attention.base import Attention, Tokens
from hf_linear_attn.attention.documents import document_starts, fill_pads
from hf_linear_attn.attention.dropout import check_dropout
from hf_linear_attn.hf_internals import (
    eager_attention_forward,
    flash_attention_forward,
    is_flash_attn_2_available,
    sdpa_attention_forward,
)
from hf_linear_attn.ops.masked_softmax import masked_softmax
from hf_linear_attn.ops.operands import accumulation_dtype

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eager": eager_attention_forward,
    "sdpa": sdpa_attention_forward,
    "flash_attention_2": flash_attention_forward,
}


def check_implementation(name: str) -> None:
    """Refuse an implementation of softmax attention that is unknown or not installed.

    Raises:
        ValueError: names what is accepted, or the extra to install.
    """
    if name not in _FUNCTIONS:
        raise ValueError(
            # Transformers' own words first: programs look for them.
            f'Specified `attn_implementation="{name}"` is not supported: the softmax layers accept '
            f"{', '.join(map(repr, _FUNCTIONS))}. Linear mechanisms are chosen by the config "
            "(layer_attention), not by attn_implementation."
        )
    if name == "flash_attention_2" and not is_flash_attn_2_available():
        raise ValueError(
            "attn_implementation='flash_attention_2' needs a CUDA device and the flash-attn "
            "package: install CUDA PyTorch, then `pip install 'hf-linear-attn[flash]' "
            "--no-build-isolation`; or use 'sdpa'."
        )


class SoftmaxAttention(Attention):
    """Softmax attention through Transformers' functions. It carries no state: give it all keys.

    Args:
        config: a model config whose `_attn_implementation` is read at every call, or None.
        attn_implementation: "eager" (whose softmax is fp32, for fp64 inputs too), "sdpa" or
            "flash_attention_2", where config is None.
        attention_probs_dropout_prob: dropout on the weights, in training.
        rotary, check_inputs: see `Attention`.
    """

    cache_kind = "full keys"
    supports_dropout = True

    def __init__(
        self,
        *,
        config: Any = None,
        attn_implementation: str = "sdpa",
        attention_probs_dropout_prob: float = 0.0,
        rotary: nn.Module | None = None,
        check_inputs: bool = True,
    ):
        super().__init__(rotary=rotary, check_inputs=check_inputs)
        if config is None:
            check_implementation(attn_implementation)
            config = SimpleNamespace(_attn_implementation=attn_implementation)
        check_dropout(attention_probs_dropout_prob)
        self.config = config
        self.attention_probs_dropout_prob = attention_probs_dropout_prob

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """See `Attention.attend`."""
        if state is not None:
            raise ValueError("SoftmaxAttention carries no state; give it all keys so far.")
        # Built without a model, or by one that has not settled on a function yet: SDPA.
        name = self.config._attn_implementation or "sdpa"
        check_implementation(name)
        if self.rotary is not None:
            query = self.rotary(query, tokens.query_positions)
            key = self.rotary(key, tokens.key_positions)
        query, key = query.to(value.dtype), key.to(value.dtype)
        # The functions read the number of query heads a key head from the module they are given.
        self.num_key_value_groups = query.shape[1] // key.shape[1]
        dropout = self.attention_probs_dropout_prob if self.training else 0.0
        shared = {"dropout": dropout, "scaling": query.shape[-1] ** -0.5}
        if name == "flash_attention_2":
            return self._flash(query, key, value, tokens, shared), None
        # The eager function knows no causal flag.
        allowed = _allowed_pairs(query, key, tokens, explicit=name == "eager")
        if tokens.key_mask is not None:
            # A weight of 0 does not stop what stands at a pad if that is not a number.
            pads = ~tokens.key_mask[:, None, :, None]
            key, value = key.masked_fill(pads, 0), value.masked_fill(pads, 0)
        empty = None if allowed is None else ~allowed.any(-1, keepdim=True)
        mask = None
        if allowed is not None and empty is not None:
            # A softmax over nothing is NaN: let such rows look anywhere and clear them after.
            mask = allowed | empty
            if name == "eager":
                floor = torch.finfo(query.dtype).min
                mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, floor)
        causal = tokens.causal and allowed is None
        out, _ = _FUNCTIONS[name](self, query, key, value, mask, is_causal=causal, **shared)
        out = out.transpose(1, 2)
        if empty is not None:
            out = out.masked_fill(empty, 0)
        return out.to(value.dtype), None

    def pair_weights(self, query: Tensor, key: Tensor, tokens: Tokens) -> Tensor:
        """See `Attention.weights`; A itself, whichever function computes the output."""
        dtype = accumulation_dtype(query, key)
        query, key = query.to(dtype), key.to(dtype)
        if self.rotary is not None:
            query = self.rotary(query, tokens.query_positions)
            key = self.rotary(key, tokens.key_positions)
        if tokens.key_mask is not None:
            key = key.masked_fill(~tokens.key_mask[:, None, :, None], 0)
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        scores = query @ key.mT * query.shape[-1] ** -0.5
        allowed = _allowed_pairs(query, key, tokens, explicit=True)
        return masked_softmax(scores, allowed)

    def _flash(self, query, key, value, tokens: Tokens, shared: dict) -> Tensor:
        """FlashAttention takes padding as a 2-D mask and documents as cumulative lengths."""
        if value.dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"flash_attention_2 computes in float16 or bfloat16; got {value.dtype}. Load the "
                "model with dtype=torch.bfloat16, run it under autocast, or use 'sdpa'."
            )
        mask = tokens.key_mask
        extra = {}
        if tokens.key_segments is not None:
            if query.shape[2] != key.shape[2]:
                raise ValueError("flash_attention_2 takes packed documents in self-attention only.")
            extra = _cumulative_lengths(tokens.key_segments, mask)
        out, _ = flash_attention_forward(
            self, query, key, value, None if extra else mask, is_causal=tokens.causal,
            **shared, **extra,
        )  # fmt: skip
        out = out.reshape(query.shape[0], query.shape[2], query.shape[1], -1).transpose(1, 2)
        if mask is not None and not tokens.causal:
            out = out.masked_fill(~mask.any(1)[:, None, None, None], 0)
        return out.to(value.dtype)


def _allowed_pairs(query: Tensor, key: Tensor, tokens: Tokens, *, explicit: bool) -> Tensor | None:
    """Bool (batch or 1, 1, query_len, key_len), or None where the causal flag says it all.

    Args:
        query, key, tokens: as in `Attention.attend`.
        explicit: spell causality out, too.
    """
    n, m = query.shape[2], key.shape[2]
    allowed = None
    if tokens.key_mask is not None:
        allowed = tokens.key_mask[:, None, None, :].expand(-1, -1, n, -1)
    if tokens.key_segments is not None and tokens.query_segments is not None:
        same = tokens.query_segments[:, None, :, None] == tokens.key_segments[:, None, None, :]
        allowed = same if allowed is None else allowed & same
    if tokens.causal and (explicit or allowed is not None or n != m):
        last = torch.arange(m - n, m, device=query.device)
        past = (torch.arange(m, device=query.device) <= last[:, None])[None, None]
        allowed = past if allowed is None else allowed & past
    return allowed


def _cumulative_lengths(segments: Tensor, mask: Tensor | None) -> dict[str, Any]:
    """Boundaries of all documents of a batch laid end to end; runs of pads count as documents.

    Raises:
        ValueError: a pad stands inside a document, which would be cut in two.
    """
    starts = documents = document_starts(fill_pads(segments, mask))
    if mask is not None:
        starts = starts | document_starts(mask.int())
        runs = (starts & mask).sum(1)
        if bool((runs > documents.sum(1)).any()):
            raise ValueError(
                "flash_attention_2 takes packed documents without padding inside them; move the "
                "padding to their ends, or use 'sdpa'."
            )
    flat = starts.flatten()
    ends = flat.new_ones(1)
    edges = torch.cat((flat, ends)).nonzero().flatten().to(torch.int32)
    longest = int(edges.diff().max())
    return {
        "cu_seq_lens_q": edges, "cu_seq_lens_k": edges,
        "max_length_q": longest, "max_length_k": longest,
    }  # fmt: skip
