"""Masks of stock models: made small, and read back.

Transformers asks the mask function registered under an attention's name for whatever that
attention needs. Ours makes no n × n mask:

* None: no padding, one document a row;
* bool (batch, keys): True = real token;
* int (batch, keys): packed documents, numbered from 1, 0 = pad;
* a tensor of three dimensions: the model wants a pattern that no linear attention can follow (a
  window, chunks, a function of its own). It is refused where a layer uses it; a model may make
  masks for layers it does not have.

A four-dimensional mask that a user passes reaches the attention as it is.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.hf_internals import bidirectional_mask_function, causal_mask_function
from hf_linear_attn.models.token_layout import padding_from_4d

# Transformers annotates indices as numbers and passes tensors.
MaskFunction = Callable[[Any, Any, Any, Any], Any]


def stock_mask(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: MaskFunction = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """What our attention functions take as a mask; see the top of the file.

    Args:
        batch_size, q_length, kv_length: of the attention.
        q_offset, kv_offset: tokens before the first query and before the first key.
        mask_function: says of indices (batch, head, query, key) whether the pair is allowed,
            padding apart.
        attention_mask: bool (batch, keys), True = real token, or None.
        local_size: width of a window or of a chunk.
        use_vmap: mask_function contains a function of the model's own.
        device: of the result.
        **kwargs: what other implementations need.

    Raises:
        ValueError: keys that are not the tokens so far (a static cache), or a mask of another
            shape.
    """
    pattern = torch.zeros((batch_size, 1, kv_length), dtype=torch.bool, device=device)
    if local_size is not None or use_vmap:
        return pattern
    expected = _expected_keys(mask_function, q_length, kv_length, q_offset)
    if attention_mask is not None and attention_mask.shape != (batch_size, expected):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; accepted: "
            f"{(batch_size, expected)}, 1 = real token (tokens in the cache included), or four "
            "dimensions."
        )
    if kv_offset or kv_length != expected:
        raise ValueError(
            f"the cache offers {kv_length} keys, {expected} tokens were seen: a static or sliding "
            "cache holds keys of no token, or not all. Leave cache_implementation out (a "
            "DynamicCache), or use LinearStateCache(model.config)."
        )
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        if q_length != kv_length:
            return pattern
        documents, other = _documents(mask_function, batch_size, kv_length, device)
        if other:
            return pattern
        if documents is not None:
            return documents if attention_mask is None else documents * attention_mask
    # One that covers other tokens than the queries is compared with them later, so it stays.
    alike = q_length == kv_length and not torch.compiler.is_compiling()
    if alike and attention_mask is not None and bool(attention_mask.all()):
        return None
    return attention_mask


def _expected_keys(
    mask_function: MaskFunction, queries: int, keys: int, before: int | Tensor
) -> int:
    """Number of keys that are tokens: those before and the queries; all in cross-attention."""
    if mask_function is bidirectional_mask_function:
        if isinstance(before, Tensor) or before:
            raise ValueError(
                "an encoder was given a cache (prefix tuning does so): these keys belong to no "
                "tokens of the input, so that linear attention knows no positions for them."
            )
        return keys
    if isinstance(before, Tensor) and torch.compiler.is_compiling():
        raise ValueError(
            "a static cache holds keys of no token, and a graph cannot look which. Leave "
            "cache_implementation out, or use LinearStateCache(model.config)."
        )
    return int(before) + queries


def _documents(
    mask_function: MaskFunction, batch: int, length: int, device: torch.device | str
) -> tuple[Tensor | None, bool]:
    """Documents of packed rows, int (batch, length) from 1, None = one; and: another pattern?

    Read off neighbours, then compared with the mask function in O(length) pairs: each token with
    its neighbours, the first of its document, the token before that, both ends of the row, and one
    drawn anywhere. (What Transformers can put in without naming it, blocks that see ahead, shows
    in neighbours.)
    """
    rows = torch.arange(batch, device=device)[:, None]
    tokens = torch.arange(length, device=device)[None].expand(batch, -1)

    def sees(queries: Tensor, keys: Tensor) -> Tensor:
        allowed = mask_function(rows, rows.new_zeros(()), queries, keys)
        return allowed.expand(queries.shape)

    before, after = (tokens - 1).clamp_min(0), (tokens + 1).clamp_max(length - 1)
    linked = sees(tokens, before) & (tokens > 0)
    documents = (~linked).long().cumsum(1)
    first = torch.where(linked, 0, tokens).cummax(1).values
    ahead = (sees(tokens, after) & (tokens < after)).any()
    anywhere = (tokens * 7919 + 13) % length
    ends = (torch.zeros_like(tokens), torch.full_like(tokens, length - 1))
    wrong = torch.zeros_like(linked)
    for keys in (tokens, before, after, first, (first - 1).clamp_min(0), *ends, anywhere):
        same = documents == documents.gather(1, keys)
        wrong = wrong | (sees(tokens, keys) != (same & (ahead | (keys <= tokens))))
    if any_wrong(wrong, "a mask is not padding (times causality, times documents) alone"):
        return None, True
    single = not torch.compiler.is_compiling() and bool((documents[:, -1:] == 1).all())
    return None if single else documents, False


def key_tokens(
    mask: Tensor | None, batch: int, queries: int, keys: int, *, causal: bool, crossed: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Padding, bool (batch, keys), and documents, int (batch, keys), from a mask in any form.

    Args:
        mask: what `stock_mask` returns, or four dimensions: (batch, 1, queries or 1, keys), bool
            (True = may attend) or additive float.
        batch: rows.
        queries, keys: lengths; tokens in a cache count as keys.
        causal: a mask of four dimensions is padding × causality.
        crossed: queries are other tokens than keys.

    Raises:
        ValueError: a mask that is no padding × causality × documents.
    """
    if mask is None:
        return None, None
    if mask.ndim == 3:
        raise ValueError(
            "this layer attends by a pattern of its own (a sliding window, chunks, or a mask "
            "function of the model), which linear attention cannot follow: it sums over all "
            "tokens of a document. Switch the pattern off in the config (sliding_window=None, "
            "layer_types of full attention), or leave attn_implementation out."
        )
    if mask.ndim == 4:
        return _from_4d(mask, batch, queries, keys, causal=causal, crossed=crossed), None
    if mask.shape != (batch, keys) or mask.is_floating_point():
        raise ValueError(
            f"the model handed a mask of shape {tuple(mask.shape)} and {mask.dtype} to an "
            f"attention with {queries} queries and {keys} keys; accepted: bool or whole numbers "
            "(batch, keys), or four dimensions."
        )
    if mask.dtype == torch.bool:
        return mask, None
    real = mask > 0
    if not torch.compiler.is_compiling() and bool(real.all()):
        return None, mask
    return real, mask


def _from_4d(
    mask: Tensor, batch: int, queries: int, keys: int, *, causal: bool, crossed: bool
) -> Tensor:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            f"a 4-D attention_mask must be bool (True = may attend) or an additive float; got "
            f"{mask.dtype}."
        )
    if not crossed:
        return padding_from_4d(mask, batch, queries, keys - queries, causal=causal)
    message = "a 4-D mask of cross-attention must be padding alone"
    if mask.shape[1] != 1 or any_wrong(mask != mask[:, :, :1], message):
        raise ValueError(
            f"{message}: one for all heads and all queries; got shape {tuple(mask.shape)} with "
            "rows that differ. Linear attention cannot mask single pairs."
        )
    return padding_from_4d(mask[:, :, :1], batch, 1, keys - 1, causal=False)
