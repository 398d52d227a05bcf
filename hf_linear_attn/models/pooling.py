"""One vector for a row of tokens: its first or last real token, or the mean of all real ones."""

import torch
from torch import Tensor

from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.token_layout import packed_segments, padding_mask


def real_tokens(
    input_ids: Tensor | None, attention_mask: Tensor | None, config: LinearAttnConfig,
    shape: tuple[int, int],
) -> Tensor | None:  # fmt: skip
    """Bool (batch, seq), True = real token, or None where all are.

    Without a mask the row begins with its first token that is not pad_token_id and ends with its
    last: a pad id between the two belongs to the text.

    Args:
        input_ids: int (batch, seq), or None = without a mask all are real.
        attention_mask: see `LinearAttnModel.forward`, or None.
        config: of the model; its pad_token_id may be None.
        shape: (batch, seq) of the input.
    """
    if attention_mask is not None:
        return padding_mask(attention_mask, *shape, causal=bool(config.is_decoder))
    if input_ids is None or config.pad_token_id is None:
        return None
    text = (input_ids != config.pad_token_id).int()
    begun = text.cumsum(1) > 0
    not_over = text.flip(1).cumsum(1).flip(1) > 0
    return begun & not_over


def pool(x: Tensor, mask: Tensor | None, pooling: str) -> Tensor:
    """(batch, seq, hidden) -> (batch, hidden); a row without a real token gives zeros.

    Args:
        x: float (batch, seq, hidden).
        mask: bool (batch, seq), True = real token, or None where all are.
        pooling: "first", "last" or "mean"; the mean is summed in fp32 at least.
    """
    if mask is None:
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if pooling == "mean":
        wide = x.double() if x.dtype == torch.float64 else x.float()
        total = wide.masked_fill(~mask[..., None], 0).sum(1)
        return (total / mask.sum(1, keepdim=True).clamp_min(1)).to(x.dtype)
    # argmax gives the first of equals.
    if pooling == "first":
        index = mask.int().argmax(1)
    else:
        index = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
    chosen = x[torch.arange(len(x), device=x.device), index]
    return chosen.masked_fill(~mask.any(1, keepdim=True), 0)


def check_pads_are_known(
    input_ids: Tensor | None, attention_mask: Tensor | None, config: LinearAttnConfig, batch: int
) -> None:  # fmt: skip
    """Refuse a batch whose real tokens nobody can tell, where the pooled vector depends on them.

    One row needs no padding; "first" reads what stands first, as RoBERTa does.

    Raises:
        ValueError: says what to pass.
    """
    if attention_mask is not None or batch == 1 or config.pooling == "first":
        return
    if input_ids is None or config.pad_token_id is None:
        why = "they are embeddings" if input_ids is None else "the config has no pad_token_id"
        ways = "" if input_ids is None else ", or set pad_token_id"
        raise ValueError(
            f"pooling={config.pooling!r} must know the pads of {batch} rows, but no "
            f"attention_mask was given and {why}. Pass attention_mask (ones where nothing is "
            f"padded){ways}."
        )


def refuse_documents(
    head: str, position_ids: Tensor | None, attention_mask: Tensor | None, x: Tensor,
    **packing: object,
) -> None:  # fmt: skip
    """Refuse packed documents where a row has one answer.

    Args:
        head: name of the class, for the message.
        position_ids, attention_mask: see `LinearAttnModel.forward`.
        x: the trunk's output (batch, seq, hidden).
        **packing: seq_idx, cu_seq_lens_q, cu_seq_lens_k and others, which are not looked at.

    Raises:
        ValueError: documents are marked, or position_ids restart without a mask.
    """
    found = [n for n in ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k") if packing.get(n) is not None]
    if not found and attention_mask is None and not torch.compiler.is_compiling():
        shape = (x.shape[0], x.shape[1])
        if packed_segments(position_ids, None, None, shape, restarts=True) is not None:
            found = ["position_ids that restart"]
    if found:
        raise ValueError(
            f"{head} gives one answer a row, but got packed documents ({', '.join(found)}). Pass "
            "one text a row, padded, with attention_mask."
        )
