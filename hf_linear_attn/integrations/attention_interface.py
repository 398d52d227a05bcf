"""Our mechanisms inside unmodified models of Transformers, as values of `attn_implementation`.

    AutoModel.from_pretrained(checkpoint, attn_implementation="cosformer")

A bridge and nothing more: the mechanisms are those of `hf_linear_attn.attention`. Stock models have
no place for parameters, so Nyström comes without its convolution and TransNormer without LRPE.
Positions count the real tokens of each document.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from hf_linear_attn.attention.base import Attention
from hf_linear_attn.attention.cosformer import CosformerAttention
from hf_linear_attn.attention.kernelized import KernelizedAttention
from hf_linear_attn.hf_internals import active_collector
from hf_linear_attn.integrations.stock_cache import HANDED
from hf_linear_attn.integrations.stock_checks import (
    check_dropout,
    is_causal,
    no_cross_attention,
    refuse_keywords,
    refuse_rotated,
    scaled_query,
)
from hf_linear_attn.integrations.stock_fields import (
    STOCK_NAMES,
    stock_mechanism,
    warn_of_flat_weights,
)
from hf_linear_attn.integrations.stock_masks import key_tokens, stock_mask, told_causality
from hf_linear_attn.integrations.stock_models import watch_models
from hf_linear_attn.integrations.stock_modules import attends_to_others, is_named_cross
from hf_linear_attn.integrations.stock_positions import (
    note_queries,
    noted_queries,
    positions_of_last,
    refuse_restarts,
)
from hf_linear_attn.models.token_layout import packed_segments


def register_stock_attention() -> None:
    """Make Transformers know our names; called on import."""
    for name in STOCK_NAMES:
        AttentionInterface.register(name, partial(stock_attention, name))
        AttentionMaskInterface.register(name, stock_mask)
    watch_models()


def stock_attention(
    name: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    output_attentions: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """One layer's attention, called by Transformers.

    Args:
        name: one of `STOCK_NAMES`.
        module: the attention module that calls.
        query: float (batch, heads, queries, head_dim).
        key, value: float (batch, kv_heads, keys, ·), those in the cache included.
        attention_mask: what `stock_mask` made, a user's of four dimensions, or None.
        dropout: probability for weights over keys.
        scaling: factor on the scores of softmax attention; None = 1/√head_dim.
        is_causal: must agree with the mask, and goes before module.is_causal.
        output_attentions: also return explicit weights (batch, heads, queries, keys).
        **kwargs: seq_idx, cu_seq_lens_q and cu_seq_lens_k for packed rows, a layer of
            `LinearStateCache`, and what is refused or harmless (`stock_checks`).

    Returns:
        (batch, queries, heads, head_dim), and the weights or None.

    Raises:
        ValueError: what the model asks for cannot be honoured.
    """
    layer = kwargs.pop(HANDED, None)
    packing = {key: kwargs.pop(key, None) for key in ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k")}
    refuse_keywords(name, module, kwargs)
    told = told_causality(attention_mask, query.shape[2])
    causal, mechanism = _prepared(name, module, is_causal, told, dropout)
    query = scaled_query(name, mechanism, module, query, scaling)
    past = 0 if layer is None else layer.seq_length
    keys = past + key.shape[2]
    warn_of_flat_weights(mechanism, module.config, keys)
    mask, segments, crossed = _read_mask(
        module, query, keys, attention_mask, packing, causal=causal, past=past
    )
    if causal and segments is None:
        refuse_restarts(kwargs.get("position_ids"), mask, query.shape[0])
    wants_weights = bool(output_attentions) or _collected()
    if layer is not None:
        _check_state_call(causal, segments, wants_weights)
        out = layer.attend(mechanism, module, query, key, value, mask)
        return out.transpose(1, 2).contiguous(), None
    if crossed:
        tokens = _crossed_tokens(name, mechanism, module, query, mask, keys)
    else:
        tokens = {"key_mask": mask, "query_segments": segments}
    return _attend(mechanism, module, query, key, value, tokens, causal, wants_weights)


def _read_mask(
    module: nn.Module, query: Tensor, keys: int, attention_mask: Tensor | None,
    packing: dict[str, Any], *, causal: bool, past: int,
) -> tuple[Tensor | None, Tensor | None, bool]:  # fmt: skip
    """Padding and documents of all keys, and whether the queries are other tokens than those."""
    batch, queries = query.shape[0], query.shape[2]
    crossed = not causal and (attends_to_others(module) or queries != keys - past)
    mask, segments = key_tokens(
        attention_mask, batch, queries, keys, causal=causal, crossed=crossed
    )
    whole = queries == keys and not crossed
    return mask, _packed(segments, packing, (batch, keys - past), whole=whole), crossed


def _attend(
    mechanism: Attention, module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
    tokens: dict[str, Any], causal: bool, wants_weights: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The mechanism over all keys, and what came of the queries that were asked."""
    queries = query.shape[2]
    if causal:
        query = _all_queries(mechanism, module, query, tokens["key_mask"], key.shape[2])
    out, _ = mechanism(query, key, value, causal=causal, **tokens)
    weights = None
    if wants_weights:
        weights = mechanism.weights(query, key, causal=causal, **tokens)[:, :, -queries:]
    return out[:, :, -queries:].transpose(1, 2).contiguous(), weights


def _all_queries(
    mechanism: Attention, module: nn.Module, query: Tensor, mask: Tensor | None, keys: int
) -> Tensor:
    """The queries, with zeros for those of the tokens in an ordinary cache, which nobody asks for.

    A mechanism counts from the first token on, and its queries are its keys' tokens.
    """
    if mechanism.uses_positions:
        note_queries(module.config, positions_of_last(mask, query.shape[0], keys, query))
    past = keys - query.shape[2]
    return nn.functional.pad(query, (0, 0, past, 0)) if past > 0 else query


def _collected() -> bool:
    """Does a model collect attention weights of this call? Not all hand output_attentions on."""
    if torch.compiler.is_compiling():
        return False
    return any("attentions" in wanted for wanted in active_collector.get() or {})


def _prepared(
    name: str, module: nn.Module, given: bool | None, told: bool | None, dropout: float
) -> tuple[bool, Attention]:
    """Is the layer causal, and its mechanism, refused where it does not fit."""
    causal = is_causal(module, given, told)
    mechanism = stock_mechanism(name, module.config, dropout)
    refuse_rotated(name, mechanism, module)
    check_dropout(name, mechanism, dropout)
    if causal and not mechanism.supports_causal:
        raise ValueError(
            f"attn_implementation={name!r} in {type(module).__name__}: {mechanism.no_causal_form()}"
        )
    # Where the mask says causal, only the module's own word is against it.
    crossed = is_named_cross(module) if told else attends_to_others(module)
    if causal and crossed:
        raise ValueError(
            f"{type(module).__name__} is cross-attention and is to be causal; linear "
            "attention cannot know which of its keys a query may see."
        )
    return causal, mechanism


def _packed(
    segments: Tensor | None, packing: dict[str, Any], shape: tuple[int, int], *, whole: bool
) -> Tensor | None:
    """Documents of packed rows: those the caller names, else those of the mask."""
    first, second = packing["cu_seq_lens_q"], packing["cu_seq_lens_k"]
    if first is not second and (first is None or second is None or not torch.equal(first, second)):
        raise ValueError("cu_seq_lens_q and cu_seq_lens_k must be alike: keys are queries here.")
    if packing["seq_idx"] is None and first is None:
        named = segments
    else:
        named = packed_segments(None, packing["seq_idx"], first, shape, restarts=False)
    if named is not None and not whole:
        raise ValueError(
            "packed documents are for self-attention without a cache; leave seq_idx, "
            "cu_seq_lens_q and restarts of position_ids out."
        )
    return named


def _check_state_call(causal: bool, segments: Tensor | None, wants_weights: bool) -> None:
    if not causal or segments is not None:
        raise ValueError("LinearStateCache is for causal attention to one document a row.")
    if wants_weights:
        raise ValueError(
            "output_attentions=True needs the keys of all tokens, and LinearStateCache keeps none; "
            "leave one of them out."
        )


def _crossed_tokens(
    name: str,
    mechanism: Attention,
    module: nn.Module,
    query: Tensor,
    mask: Tensor | None,
    keys: int,
) -> dict[str, Any]:
    """Keywords for cross-attention: each side has its own positions, from 0."""
    per_length = isinstance(mechanism, CosformerAttention) and mechanism.cos_horizon == "length"
    if not isinstance(mechanism, KernelizedAttention) or per_length:
        what = "cos_horizon='length'" if per_length else f"attn_implementation={name!r}"
        raise no_cross_attention(what, module)
    if mechanism.uses_positions:
        positions = noted_queries(module.config, query)
    else:
        positions = torch.arange(query.shape[2], device=query.device)[None]
    counted = torch.arange(keys, device=query.device)[None]
    if mask is not None:
        counted = (mask.long().cumsum(1) - 1).clamp_min(0)
    return {"key_mask": mask, "query_positions": positions, "key_positions": counted}
