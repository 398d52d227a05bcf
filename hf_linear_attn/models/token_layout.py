"""From what callers pass (masks, positions, packing keywords) to what a mechanism takes.

Done once a forward pass, in the trunk: a 2-D padding mask or a 4-D mask of padding (× causality in
a decoder), position ids, and the packed documents of `DataCollatorWithFlattening`, in this order of
precedence: seq_idx, cu_seq_lens_q, a restart of position_ids (the last only without a mask and
without a cache).
"""

import torch
from torch import Tensor

from hf_linear_attn.attention.documents import (
    check_documents,
    document_starts,
    fill_pads,
    token_positions,
)
from hf_linear_attn.attention.value_checks import any_wrong


def padding_mask(
    attention_mask: Tensor | None, batch: int, length: int, *,
    causal: bool = False, past: int = 0, real_tokens: Tensor | None = None,
) -> Tensor | None:  # fmt: skip
    """Bool (batch, length), True = real token, from a mask in any of the accepted forms.

    Args:
        attention_mask: (batch, past + length) of 1/0 in any dtype, or (batch or 1, 1, length or 1,
            past + length) bool (True = may attend) or additive float (0 = may attend); None = no
            padding among the new tokens.
        batch, length: of the input.
        causal: a 4-D mask is padding × causal, and not padding alone.
        past: number of tokens in the cache.
        real_tokens: int (batch,), how many of them are no padding; None = not known.

    Raises:
        ValueError: another shape, other values, a 4-D mask that is something else, or pads that
            are not those the cache was filled with.
    """
    if attention_mask is None:
        return None
    if attention_mask.ndim == 2:
        mask = _from_2d(attention_mask, batch, length, past)
    elif attention_mask.ndim == 4:
        mask = padding_from_4d(attention_mask, batch, length, past, causal=causal)
    else:
        raise ValueError(
            f"attention_mask must have 2 or 4 dimensions; got shape {tuple(attention_mask.shape)}."
        )
    if (
        past
        and real_tokens is not None
        and any_wrong(mask[:, :past].sum(1) != real_tokens, "attention_mask is not the cache's")
    ):
        raise ValueError(
            f"attention_mask has {mask[:, :past].sum(1).tolist()} real tokens where the cache was "
            f"filled with {real_tokens.tolist()}. The padding of tokens in the cache cannot be "
            "changed: pass the mask with them, and again with every later call."
        )
    mask = mask[:, past:]
    return None if not torch.compiler.is_compiling() and bool(mask.all()) else mask


def _from_2d(attention_mask: Tensor, batch: int, length: int, past: int) -> Tensor:
    if attention_mask.shape != (batch, past + length):
        sizes = f"the input has {(batch, length)}"
        if past:
            sizes += (
                f" and the cache {past} tokens: pass {(batch, past + length)}, or None if no new "
                "token is padding"
            )
        raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}; {sizes}.")
    if attention_mask.dtype == torch.bool:
        return attention_mask
    mask = attention_mask != 0
    wrong = mask & (attention_mask != 1)
    if any_wrong(wrong, "a 2-D attention_mask holds other values than 1 and 0"):
        raise ValueError(
            "a 2-D attention_mask holds 1 for real tokens and 0 for padding; got other values "
            f"(minimum {attention_mask.min().item()}, maximum {attention_mask.max().item()})."
        )
    return mask


def padding_from_4d(
    attention_mask: Tensor, batch: int, length: int, past: int, *, causal: bool
) -> Tensor:
    """Bool (batch, past + length), True = real token; arguments and errors as in `padding_mask`."""
    b, heads, rows, columns = attention_mask.shape
    total = past + length
    if b not in (1, batch) or heads != 1 or rows not in (1, length) or columns != total:
        raise ValueError(
            f"a 4-D attention_mask must have shape (batch, 1, queries, keys) = "
            f"{(batch, 1, length, total)}, one for all heads; got {tuple(attention_mask.shape)}."
        )
    allowed = attention_mask
    if attention_mask.dtype != torch.bool:
        # Additive masks use the smallest number of some dtype, or −inf; fp16's is −65504.
        allowed = attention_mask == 0
        wrong = ~allowed & (attention_mask > -1e4)
        if any_wrong(wrong, "a 4-D attention_mask holds values between 0 and -1e4"):
            raise ValueError(
                "a 4-D float attention_mask is additive: 0 = may attend, a large negative number "
                "= may not; got other values. Linear attention cannot add a bias to a pair."
            )
    allowed = allowed[:, 0].expand(batch, length, total)
    visible = torch.ones_like(allowed)
    if causal:
        visible = visible.tril(past)
    mask = (allowed & visible).any(1)
    _check_pairs(allowed, mask[:, None, :] & visible, mask[:, past:], past, causal=causal)
    return mask


def _check_pairs(
    allowed: Tensor, expected: Tensor, real: Tensor, past: int, *, causal: bool
) -> None:
    """Rows of pads are nobody's business; every real row must see exactly what is expected."""
    wrong = (allowed != expected) & real[:, :, None]
    if not any_wrong(wrong, "a 4-D attention_mask is not padding (times causality) alone"):
        return
    row, i, j = (int(x) for x in wrong.nonzero()[0])
    form = "padding alone (every real token sees every real token) in an encoder"
    if causal:
        form = (
            "padding and causality alone (every real token sees every real token up to itself) in "
            "a decoder"
        )
    raise ValueError(
        f"a 4-D attention_mask must be {form}; in row {row} token {past + i} "
        f"{'may not see' if not bool(allowed[row, i, j]) else 'sees'} token {j}. Linear "
        "attention cannot mask single pairs: pass a 2-D padding mask, and packed documents as "
        "seq_idx."
    )


def packed_segments(
    position_ids: Tensor | None,
    seq_idx: Tensor | None,
    cu_seq_lens: Tensor | None,
    shape: tuple[int, int],
    *,
    restarts: bool,
) -> Tensor | None:
    """Document of each token, int (batch, length), or None for one document a row.

    Args:
        position_ids: int (batch or 1, length) or None.
        seq_idx: int (batch, length) or None.
        cu_seq_lens: int (documents + 1,), boundaries in the batch laid end to end, or None.
        shape: (batch, length).
        restarts: a position that is not above the one before it begins a document.

    Raises:
        ValueError: shapes, types or boundaries that do not fit the input.
    """
    if position_ids is not None and position_ids.shape not in (shape, (1, shape[1])):
        raise ValueError(
            f"position_ids has shape {tuple(position_ids.shape)}; accepted: {shape} or "
            f"{(1, shape[1])}."
        )
    for name, ids in (("position_ids", position_ids), ("seq_idx", seq_idx)):
        if ids is not None and ids.is_floating_point():
            raise ValueError(f"{name} must be integers; got {ids.dtype}.")
    if seq_idx is not None:
        if seq_idx.shape != shape:
            raise ValueError(f"seq_idx has shape {tuple(seq_idx.shape)}; the input has {shape}.")
        return seq_idx
    if cu_seq_lens is not None:
        return _from_boundaries(cu_seq_lens, shape)
    if position_ids is None or not restarts:
        return None
    begins = position_ids[:, 1:] <= position_ids[:, :-1]
    if not torch.compiler.is_compiling() and not bool(begins.any()):
        return None
    documents = torch.nn.functional.pad(begins.long().cumsum(1), (1, 0))
    return documents.expand(shape)


def _from_boundaries(cu_seq_lens: Tensor, shape: tuple[int, int]) -> Tensor:
    batch, length = shape
    total = batch * length
    if cu_seq_lens.ndim != 1 or cu_seq_lens.shape[0] < 2:
        raise ValueError(
            "cu_seq_lens_q must be a vector [0, …, number of tokens]; got shape "
            f"{tuple(cu_seq_lens.shape)}."
        )
    wrong = (cu_seq_lens[0] != 0) | (cu_seq_lens[-1] != total) | (cu_seq_lens.diff() < 0).any()
    if any_wrong(wrong, "cu_seq_lens_q does not ascend from 0 to the number of tokens"):
        raise ValueError(
            f"cu_seq_lens_q must ascend from 0 to the number of tokens ({total}); got "
            f"{cu_seq_lens.tolist()}."
        )
    rows = torch.arange(1, batch, device=cu_seq_lens.device) * length
    wrong = ~torch.isin(rows, cu_seq_lens)
    if any_wrong(wrong, "cu_seq_lens_q: a document reaches over the end of a row"):
        raise ValueError(
            f"cu_seq_lens_q is {cu_seq_lens.tolist()}: a document reaches over the end of a "
            f"row of {length} tokens. Begin a document with each row, or pass one long row."
        )
    tokens = torch.arange(total, device=cu_seq_lens.device)
    return torch.searchsorted(cu_seq_lens.long(), tokens, right=True).view(shape)


def token_keywords(
    mask: Tensor | None, position_ids: Tensor | None, segments: Tensor | None,
    shape: tuple[int, int], device: torch.device, first: Tensor | None = None,
) -> dict[str, Tensor | None]:  # fmt: skip
    """The keywords of `Attention.forward` for self-attention, positions always filled in.

    Args:
        mask: bool (batch, length) or None.
        position_ids: int (batch or 1, length) or None = counted over real tokens, from `first`, in
            every document.
        segments: int (batch, length) or None.
        shape: (batch, length) of the input.
        device: of the input.
        first: int (batch,), position of each row's first real token; None = 0.

    Raises:
        ValueError: documents that are not contiguous.
    """
    if segments is not None:
        check_documents(segments, mask)
    if position_ids is not None:
        positions = position_ids
    else:
        if mask is not None or segments is not None:
            positions = token_positions(mask, segments)
        else:
            positions = torch.arange(shape[1], device=device)[None]
        if first is not None:
            positions = first[:, None] + positions
    if mask is not None:
        # A pad's own position is nobody's business, but a table must be able to look it up.
        positions = torch.where(mask, positions, 0)
    return {
        "key_mask": mask, "query_positions": positions, "query_segments": segments,
    }  # fmt: skip


def predictable(labels: Tensor, mask: Tensor | None, segments: Tensor | None) -> Tensor:
    """Labels of a causal LM without the targets behind a pad or a token of another document.

    Args:
        labels: int (batch, length), −100 = no target.
        mask: bool (batch, length), True = real token, or None.
        segments: int (batch, length), the document of each token, or None.
    """
    lost = torch.zeros_like(labels, dtype=torch.bool)
    if segments is not None:
        lost = document_starts(fill_pads(segments, mask))
    if mask is not None:
        lost = lost | ~torch.nn.functional.pad(mask[:, :-1], (1, 0), value=True)
    return labels.masked_fill(lost, -100)
