"""Attention inside non-overlapping blocks of w tokens (TransNormer's DiagAttention, A.4 there).

    o_i = Σ_j A_ij v_j,  j in the block of i (⌊p_j/w⌋ = ⌊p_i/w⌋, same document; causal: j ≤ i)
    A = softmax(q_i·k_j/√d) over those j, or relu(q_i·k_j/√d) without a normaliser

Blocks count positions, not columns of the batch, so padding on either side moves no border, and
tokens that are missing from an incomplete block take no weight. Time and memory O(n·w).

Tokens of one block are less than w apart once the padding is moved to the end, whatever positions
and documents a row has. So queries are cut into chunks of w and each chunk looks at itself and its
neighbours; where chunks and blocks are known to coincide it looks at itself alone. A state holds
the block that is being filled, one slot a position: (B, G, w, D + Dv + 1) of keys, values and
1 + block index (0 = empty slot).
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from hf_linear_attn.backend import require_backend
from hf_linear_attn.ops.block_window import BlockTokens, next_state, window_block
from hf_linear_attn.ops.compaction import Compaction
from hf_linear_attn.ops.masked_softmax import masked_softmax
from hf_linear_attn.ops.operands import accumulation_dtype
from hf_linear_attn.ops.recomputed_op import recomputed_op, takes_operators
from hf_linear_attn.ops.self_attention_inputs import check_self_attention

BlockWeights = Literal["softmax", "relu"]

# Labels of tokens that are not there; they match nothing.
_NO_QUERY, _NO_KEY = -2, -1


def block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    *,
    causal: bool,
    block_size: int,
    weights: BlockWeights = "softmax",
    key_mask: Tensor | None = None,
    segments: Tensor | None = None,
    state: Tensor | None = None,
    aligned: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Block-diagonal self-attention over (batch, heads, seq, head_dim) tensors of any strides.

    Args:
        q: (B, H, N, D) float.
        k: (B, G, N, D) float; G divides H.
        v: (B, G, N, Dv) float.
        positions: int (B or 1, N), rising over the real tokens of a document.
        causal: token i attends to j ≤ i.
        block_size: w, tokens a block.
        weights: "softmax" or "relu" of q·k/√D.
        key_mask: bool (B, N), True = real token.
        segments: int (B, N), the document of each token; documents are contiguous.
        state: what an earlier causal call returned, or None. Not with segments.
        aligned: positions count the real tokens of a row from 0, there is one document and no
            state: blocks are then chunks, at a third (causal: half) of the cost.
        dropout: probability that a weight is dropped.

    Returns:
        The output (B, H, N, Dv) in the accumulation dtype (fp32, or fp64 for fp64 inputs), 0 at
        pads; and the state if causal, else None.

    Raises:
        ValueError: shapes or arguments that contradict each other.
    """
    check_self_attention(q, k, v, key_mask, segments)
    _check(q, k, v, positions, causal, block_size, segments, state, weights)
    settings = (causal, block_size, weights, aligned)
    if torch.compiler.is_exporting() and dropout:
        raise ValueError("block attention is exported without dropout: call model.eval() first.")
    if takes_operators() and not dropout:
        out, final = _in_graph(q, k, v, state, positions, key_mask, segments, *settings)
        return out, final if causal else None
    return _compute(q, k, v, state, positions, key_mask, segments, *settings, dropout)


def _compute(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, positions: Tensor,
    key_mask: Tensor | None, segments: Tensor | None, causal: bool, block_size: int,
    weights: BlockWeights, aligned: bool, dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """`block_attention` itself, its arguments checked."""
    require_backend(q)
    with torch.autocast(q.device.type, enabled=False):
        order = None if key_mask is None else Compaction(key_mask)
        tokens = _prepare(q, k, v, positions, block_size, order, segments)
        window = None if state is None else state.to(tokens.q.dtype)
        out = _attend(tokens, window, block_size, causal, weights, aligned, dropout)
        if order is not None:
            out = order.unpack(out, 2)
        final = next_state(tokens, window, block_size) if causal else None
    return out, final


def _compute_whole(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Output and state; an empty tensor where there is none."""
    out, final = _compute(*arguments)
    return out.contiguous(), out.new_empty(0) if final is None else final.contiguous()


def _shapes(q, k, v, state, positions, key_mask, segments, causal, w, weights, aligned):
    dtype, width = accumulation_dtype(q, k, v), k.shape[3] + v.shape[3] + 1
    out = q.new_empty(*q.shape[:3], v.shape[3], dtype=dtype)
    final = (*k.shape[:2], w, width) if causal else (0,)
    return out, q.new_empty(final, dtype=dtype)


_in_graph = recomputed_op(
    "block_attention",
    7,
    "Tensor q, Tensor k, Tensor v, Tensor? state, Tensor positions, Tensor? key_mask, "
    "Tensor? segments, bool causal, int block_size, str weights, bool aligned",
    _compute_whole,
    _shapes,
)


def _prepare(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, w: int, order: Compaction | None,
    segments: Tensor | None,
) -> BlockTokens:  # fmt: skip
    dtype = accumulation_dtype(q, k, v)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    real = None
    if order is not None:
        real = order.real
        # Fill, not multiply: whatever stands at a pad (even NaN) must not get through.
        pads = ~real[:, None, :, None]
        q, k, v = (order.pack(x, 2).masked_fill(pads, 0) for x in (q, k, v))
        positions = order.pack(positions, 1)
        segments = None if segments is None else order.pack(segments, 1)
    block = torch.div(positions, w, rounding_mode="floor")
    label = block
    if segments is not None:
        changes = (block[:, 1:] != block[:, :-1]) | (segments[:, 1:] != segments[:, :-1])
        label = pad(changes.long().cumsum(1), (1, 0))
    return BlockTokens(q, k, v, block, positions - block * w, label, real)


def _attend(
    tokens: BlockTokens, window: Tensor | None, w: int, causal: bool, weights: BlockWeights,
    alone: bool, dropout: float,
) -> Tensor:  # fmt: skip
    H, N = tokens.q.shape[1:3]
    G = tokens.k.shape[1]
    short = w >= N
    chunk = N if short else w
    q, k, v = (_chunks(x, chunk, 2) for x in (tokens.q, tokens.k, tokens.v))
    q_label = _chunks(_labels(tokens, _NO_QUERY), chunk, 1, fill=_NO_QUERY)
    k_label = _chunks(_labels(tokens, _NO_KEY), chunk, 1, fill=_NO_KEY)
    past = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    seen = past if causal else torch.ones_like(past)
    if window is not None or not (short or alone):
        k, v, k_label, before = _with_neighbours(k, v, k_label, tokens, window, short, causal)
        seen = pad(seen, before, value=True)
    allowed = (q_label[..., :, None] == k_label[..., None, :]) & seen
    # (B, G, chunks, r·chunk, ·): heads of a group are rows of one product.
    rows = q.unflatten(1, (G, H // G)).transpose(2, 3).flatten(3, 4)
    scores = rows @ k.mT * q.shape[-1] ** -0.5
    scores = scores.unflatten(3, (H // G, chunk))
    A = _weigh(scores, allowed[:, None, :, None], weights).flatten(3, 4)
    A = torch.dropout(A, dropout, train=True) if dropout else A
    out = (A @ v).unflatten(3, (H // G, chunk)).transpose(2, 3)
    return out.flatten(1, 2).flatten(2, 3)[:, :, :N]


def _weigh(scores: Tensor, allowed: Tensor, weights: BlockWeights) -> Tensor:
    """Scores (…, n, m) -> weights, 0 where not allowed and in rows that see nothing."""
    if weights == "relu":
        return scores.relu().masked_fill(~allowed, 0)
    return masked_softmax(scores, allowed)


def _labels(tokens: BlockTokens, missing: int) -> Tensor:
    if tokens.real is None:
        return tokens.label
    return torch.where(tokens.real, tokens.label, missing)


def _chunks(x: Tensor, chunk: int, dim: int, fill: int = 0) -> Tensor:
    """Cut `dim` into (chunks, chunk), the last one filled up."""
    count = (x.shape[dim] + chunk - 1) // chunk
    # Contiguous before: padding by nothing keeps strides that a graph would not expect.
    x = pad(
        x.contiguous(), (0, 0) * (x.ndim - 1 - dim) + (0, count * chunk - x.shape[dim]), value=fill
    )
    return x.unflatten(dim, (count, chunk))


def _with_neighbours(
    k: Tensor, v: Tensor, label: Tensor, tokens: BlockTokens, window: Tensor | None, short: bool,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:  # fmt: skip
    """Keys of each chunk with those before it (and behind it): the window, other chunks.

    Returns k, v (B, G, chunks, m, ·), label (B or 1, chunks, m), and how many keys were put before
    and behind a chunk's own.
    """
    B, G, _, chunk, D = k.shape
    if window is None:
        first = k.new_zeros(B, G, chunk, D + v.shape[-1])
        first_label = label.new_full((label.shape[0], chunk), _NO_KEY)
    else:
        first, first_label = window[..., :-1], window_block(window)
        label = label.expand(B, -1, -1)
    own, first, first_label = torch.cat((k, v), -1), first[:, :, None], first_label[:, None]
    if short:
        parts, labels = [first, own], [first_label, label]
    else:
        parts = [torch.cat((first, own[:, :, :-1]), 2), own]
        labels = [torch.cat((first_label, label[:, :-1]), 1), label]
    before, behind = first.shape[3], 0
    if not (short or causal):
        parts.append(pad(own[:, :, 1:], (0, 0, 0, 0, 0, 1)))
        labels.append(pad(label[:, 1:], (0, 0, 0, 1), value=_NO_KEY))
        behind = chunk
    k, v = torch.cat(parts, 3).split((D, v.shape[-1]), -1)
    return k, v, torch.cat(labels, 2), (before, behind)


def _check(q, k, v, positions, causal, block_size, segments, state, weights) -> None:
    """Refuse what cannot be computed as asked."""
    (B, _, N, D), G = q.shape, k.shape[1]
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; it must be at least 1.")
    if weights not in ("softmax", "relu"):
        raise ValueError(f"weights is {weights!r}; accepted: 'softmax', 'relu'.")
    if positions.shape not in ((B, N), (1, N)):
        raise ValueError(f"positions must have shape {(B, N)}; got {tuple(positions.shape)}.")
    if state is None:
        return
    if not causal or segments is not None:
        raise ValueError("a state can be carried into causal attention without segments only.")
    wanted = (B, G, block_size, D + v.shape[-1] + 1)
    if tuple(state.shape) != wanted:
        raise ValueError(f"state must have shape {wanted}; got {tuple(state.shape)}.")
