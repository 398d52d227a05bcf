"""What a stock model asks of its attention function and linear attention cannot give.

Everything is refused by its name and nothing is dropped: a keyword that no one here knows is
refused, too, for it may change what the layer computes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import logging

from hf_linear_attn.attention.base import Attention
from hf_linear_attn.attention.kernelized import KernelizedAttention
from hf_linear_attn.integrations.stock_modules import rotates
from hf_linear_attn.models.foreign_config import WEIGHT_MAPS

logger = logging.get_logger(__name__)

_CANNOT = {
    "position_bias": "a bias for every pair (relative positions, ALiBi)",
    "alibi": "a bias for every pair (ALiBi)",
    "softcap": "a bound on the scores of pairs",
    "s_aux": "attention sinks in the sum over keys",
    "sinks": "attention sinks in the sum over keys",
    "sliding_window": "a window of keys for every query (in this layer at least)",
    "head_mask": "a factor for every head's weights",
    "layer_head_mask": "a factor for every head's weights",
    "block_indices": "a choice of keys for every query",
    "indices": "a choice of keys for every query",
    "attention_mask": "a mask of its own, made of pairs",
}

# About the call, the loss or the outputs, not about attention. position_ids reached the position
# embeddings; restarts, which reach the mask function only without a mask and without a cache, are
# looked for by `refuse_restarts`.
_HARMLESS = {
    "cache",
    "cache_position",
    "deterministic",
    "labels",
    "logits_to_keep",
    "max_length_k",
    "max_length_q",
    "num_items_in_batch",
    "output_hidden_states",
    "output_router_logits",
    "position_ids",
    "return_dict",
    "token_type_ids",
    "use_cache",
}

_CONVERTED = {
    "cosformer": "Cosformer",
    "linear_transformer": "LinearTransformer",
    "transnormer_norm": "TransNormer",
}


def refuse_keywords(name: str, module: nn.Module, keywords: dict[str, Any]) -> None:
    """Refuse what an attention function was handed and `name` cannot do.

    Raises:
        ValueError: names the keyword.
    """
    for keyword, value in keywords.items():
        if value is None or value is False or keyword in _HARMLESS:
            continue
        raise cannot_honour(name, module, keyword)


def cannot_honour(name: str, module: nn.Module, keyword: str) -> ValueError:
    """The refusal of one keyword of an attention function."""
    what = _CANNOT.get(keyword, "something this package does not know of")
    return ValueError(
        f"attn_implementation={name!r} cannot honour {keyword!r}, with which "
        f"{type(module).__name__} asks for {what}. Switch it off in the model's config where "
        "it can be, or use another attn_implementation for this model."
    )


def refuse_rotated(name: str, mechanism: Attention, module: nn.Module) -> None:
    """Refuse an elementwise map of queries and keys that are rotated already.

    Raises:
        ValueError: names mechanisms that fit, and the way through conversion where there is one.
    """
    if not isinstance(mechanism, KernelizedAttention) or not rotates(module):
        return
    fitting = "'transnormer_diag'" if is_flagged_causal(module) else "'transnormer_diag', 'nystrom'"
    known = WEIGHT_MAPS.get(getattr(module.config, "model_type", ""))
    way = f"Mechanisms that fit: {fitting}."
    if known is not None:
        head = "ForCausalLM" if known.is_decoder else "ForMaskedLM"
        way += (
            " Or convert the checkpoint, which puts the map before the rotation: "
            f"{_CONVERTED[name]}{head}.from_pretrained(checkpoint)."
        )
    raise ValueError(
        f"attn_implementation={name!r} cannot be used with {type(module).__name__}: it rotates "
        "queries and keys by their positions (RoPE) before attention is called, and a map of each "
        "entry of a rotated vector knows no distances (padding on the left would change results). "
        f"{way}"
    )


def no_cross_attention(what: str, module: nn.Module) -> ValueError:
    """The refusal of cross-attention.

    Args:
        what: that has no form for it.
        module: the attention module.
    """
    return ValueError(
        f"{what} has no form for cross-attention ({type(module).__name__}): it is made of tokens "
        "that attend to one another. Use 'cosformer' with a number of tokens as cos_horizon, or "
        "'linear_transformer'."
    )


def scaled_query(
    name: str, mechanism: Attention, module: nn.Module, query: Tensor, scaling: float | None
) -> Tensor:
    """The query, times what the model's scaling of the scores is beyond 1/√head_dim.

    Softmax-type mechanisms multiply scores by 1/√head_dim themselves. A ReLU lets a factor through,
    and a normalised row cancels it. 1 + elu does neither.

    Raises:
        ValueError: another scaling, and a map that is not homogeneous.
    """
    usual = query.shape[-1] ** -0.5
    if scaling is None or abs(scaling - usual) <= 1e-6 * usual:
        return query
    if not isinstance(mechanism, KernelizedAttention):
        return query * (scaling / usual)
    if mechanism.feature_map == "relu" and scaling > 0:
        return query
    raise ValueError(
        f"attn_implementation={name!r} has no scale that scaling={scaling} of "
        f"{type(module).__name__} (instead of 1/√head_dim = {usual:.4g}) could mean: its map "
        f"{mechanism.feature_map!r} gives another function for scaled queries. Use 'cosformer' "
        "(a positive scale cancels) or 'transnormer_diag'."
    )


def check_dropout(name: str, mechanism: Attention, dropout: float) -> None:
    """Say once that a mechanism without weights over the keys drops none of them."""
    if torch.compiler.is_compiling():  # a graph cannot speak
        return
    if dropout > 0 and not mechanism.supports_dropout:
        logger.warning_once(
            f"attn_implementation={name!r} applies no attention dropout (the model's is "
            f"{dropout}): linear attention never forms the weights to drop. Its other dropouts "
            "act as before."
        )


def is_causal(module: nn.Module, given: bool | None, told: bool | None) -> bool:
    """Does a token see only those before it?

    Args:
        module: the attention module, whose is_causal is asked last: softmax attention follows its
            mask, and in some models the flag says something else.
        given: the call's is_causal.
        told: what the mask says (`told_causality`).

    Raises:
        ValueError: nobody says, or the call contradicts the mask.
    """
    if told is not None and given is not None and bool(given) != told:
        raise ValueError(
            f"{type(module).__name__} is called with is_causal={given}, but the mask that "
            f"Transformers made for it is {'' if told else 'not '}causal. Leave is_causal out; "
            "config.is_causal=False makes a decoder see both sides."
        )
    if told is not None:
        return told
    if given is not None:
        return bool(given)
    own = getattr(module, "is_causal", None)
    if own is None:
        raise ValueError(
            f"neither {type(module).__name__} (it has no is_causal, as attention modules of "
            "Transformers do) nor a mask says whether it is causal, so linear attention cannot "
            "know."
        )
    return is_flagged_causal(module)


def is_flagged_causal(module: nn.Module) -> bool:
    """What the module and its config say, where no mask was asked for yet."""
    own = bool(getattr(module, "is_causal", False))
    return own and getattr(getattr(module, "config", None), "is_causal", True) is not False
