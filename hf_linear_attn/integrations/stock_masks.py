"""Masks of stock models: made small, and read back.

Transformers asks the mask function registered under an attention's name for whatever that
attention needs. Ours makes no n × n mask, but a row for each row of the batch: which tokens are
real, or the documents they belong to. With it goes what Transformers asked for (`MaskForm`): a
causal mask, one that is not, or a pattern that no linear attention can follow (a window, chunks, a
function of the model's own). A pattern is refused where a layer uses it; a model may make masks
for layers it does not have.

A four-dimensional mask that a user passes reaches the attention as it is.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.hf_internals import bidirectional_mask_function, causal_mask_function
from hf_linear_attn.integrations.stock_mask_form import MaskForm, unwrapped, wrapped
from hf_linear_attn.models.token_layout import padding_from_4d

# Transformers annotates indices as numbers and passes tensors.
MaskFunction = Callable[[Any, Any, Any, Any], Any]

_PATTERN = MaskForm(causal=False, other=True)


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
) -> Tensor:
    """What our attention functions take as a mask; see `stock_mask_form`.

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
    pattern = wrapped(None, _PATTERN, batch_size, device)
    if local_size is not None or use_vmap:
        return pattern
    expected = _expected_keys(mask_function, q_length, kv_length, q_offset)
    _check_lengths(attention_mask, batch_size, kv_length, expected, kv_offset)
    form, documents = MaskForm(mask_function is causal_mask_function), None
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        if q_length != kv_length:
            return pattern
        documents, form = _documents(mask_function, batch_size, kv_length, device)
    if documents is not None and not form.other:
        rows = documents if attention_mask is None else documents * attention_mask
        return wrapped(rows, form, batch_size, device)
    # One that covers other tokens than the queries is compared with them later, so it stays.
    alike = q_length == kv_length and not torch.compiler.is_compiling()
    if form.other or (alike and attention_mask is not None and bool(attention_mask.all())):
        attention_mask = None
    return wrapped(attention_mask, form, batch_size, device)


def _check_lengths(
    attention_mask: Tensor | None, batch: int, keys: int, expected: int, kv_offset: int
) -> None:
    if attention_mask is not None and attention_mask.shape != (batch, expected):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; accepted: "
            f"{(batch, expected)}, 1 = real token (tokens in the cache included), or four "
            "dimensions."
        )
    if kv_offset or keys != expected:
        raise ValueError(
            f"the cache offers {keys} keys, {expected} tokens were seen: a static or sliding "
            "cache holds keys of no token, or not all. Leave cache_implementation out (a "
            "DynamicCache), or use LinearStateCache(model.config)."
        )


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
) -> tuple[Tensor | None, MaskForm]:
    """Documents of packed rows, int (batch, length) from 1, None = one; and what they are.

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
    if torch.compiler.is_compiling():
        # A graph must know now; Transformers packs no rows that see ahead.
        ahead = ahead & False
    anywhere = (tokens * 7919 + 13) % length
    ends = (torch.zeros_like(tokens), torch.full_like(tokens, length - 1))
    wrong = torch.zeros_like(linked)
    for keys in (tokens, before, after, first, (first - 1).clamp_min(0), *ends, anywhere):
        same = documents == documents.gather(1, keys)
        wrong = wrong | (sees(tokens, keys) != (same & (ahead | (keys <= tokens))))
    if any_wrong(wrong, "a mask is not padding (times causality, times documents) alone"):
        return None, _PATTERN
    if torch.compiler.is_compiling():
        return documents, MaskForm(True, documents=True)
    causal, single = not bool(ahead), bool((documents[:, -1:] == 1).all())
    return None if single else documents, MaskForm(causal, documents=not single)


def told_causality(mask: Tensor | None, queries: int) -> bool | None:
    """What a mask says of causality; None if it says nothing.

    One of four dimensions with a single row for several queries is padding alone.
    """
    if mask is None or mask.ndim != 4:
        return None
    own = unwrapped(mask)
    if own is not None:
        return own[1].causal
    return False if mask.shape[2] == 1 < queries else None


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
    own = None if mask is None else unwrapped(mask)
    if own is not None and own[1].other:
        raise ValueError(
            "this layer attends by a pattern of its own (a sliding window, chunks, or a mask "
            "function of the model), which linear attention cannot follow: it sums over all "
            "tokens of a document. Switch the pattern off in the config (sliding_window=None, "
            "layer_types of full attention), or leave attn_implementation out."
        )
    if own is not None:
        mask = own[0]
    if mask is None:
        return None, None
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
