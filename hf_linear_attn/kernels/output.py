"""The output of a chunk of queries: what its states hold, and the pairs inside the chunk."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.own_rows import (
    load_rows,
    own_chunk,
    own_heads,
    own_state,
    real_keys,
)
from hf_linear_attn.kernels.through_states import through_states
from hf_linear_attn.kernels.tiles import load_tile, pair_weights, products, store_tile


@triton.jit
def output(
    q, k, v, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, prefix, suffix, out, total,
    rest, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, cos_q_b, cos_k_b, N, G, R, eps,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, CAUSAL: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks · B·H, tiles of Dv).

    Args:
        q: (B, H, N, D), k: (B, G, N, D), v: (B, G, N, Dv), with strides, 1 along the last.
        cos_q, …, sin_k: fp32 (B or 1, N), or None.
        mask: uint8 (B, N) or None; segments: int64 (B, N) or None.
        before, behind: int64 (B, chunks + 1), the document of the prefix and of the suffix state at
            each border; None = one document.
        prefix: fp32 (chunks, B·G, F·E), of each chunk; one for all without INNER.
        suffix: likewise, the sums behind each chunk, or None.
        out: (B, H, N, Dv) contiguous; total: fp32 (B, H, N), with NORM.
        rest: what rounding took from `out`, with NORM in 16 bits, else None.
        INNER: pairs inside the chunk count, too.
    """
    t, first, own, rows, inside, bh = own_chunk(N, C)
    b, h, g, bg = own_heads(bh, G, R)
    columns = tl.program_id(1) * BV + tl.arange(0, BV)
    q += b * q_b + h * q_h + first * q_n
    k += b * k_b + g * k_h + first * k_n
    v += b * v_b + g * v_h + first * v_n

    c = load_rows(cos_q, b * cos_q_b, rows, inside)
    s = load_rows(sin_q, b * cos_q_b, rows, inside)
    ids = load_rows(segments, b * N, rows, inside)
    O, d = through_states(
        q, q_n, own, inside, None, ids, before, behind, b * (tl.cdiv(N, C) + 1) + t, c, s, prefix,
        suffix, own_state(t, bg, N, R, cos_q, C, D, DV, NORM, INNER), columns, D, DV, C, BK, BV,
        MAP, TY, NORM, "queries",
    )  # fmt: skip
    if INNER:
        real = real_keys(mask, b * N, rows, inside)
        pairs = products(q, q_n, inside, k, k_n, real, own, D, BK, C, MAP, TY)
        pairs *= pair_weights(
            c, s, cos_k, sin_k, b * cos_k_b, ids, rows, inside, C, "lower" if CAUSAL else ""
        )
        # Numerator and denominator take the same, rounded weights: see `state_scan`.
        weights = pairs.to(TY)
        V = load_tile(v, own, v_n, columns, real, DV).to(TY)
        O = tl.dot(weights, V, O, input_precision="ieee")
        if NORM:
            d += tl.sum(weights.to(tl.float32), 1)
    place = bh * N
    if NORM:
        O = O / tl.where(d < eps, eps, d)[:, None]
        O = tl.where((d <= 0)[:, None], 0.0, O)
        if tl.program_id(1) == 0:
            tl.store(total + place + rows, d, mask=inside)
    store_tile(out + (place + first) * DV, own, DV, columns, inside, DV, O)
    if rest is not None:
        O -= O.to(out.dtype.element_ty).to(tl.float32)
        store_tile(rest + (place + first) * DV, own, DV, columns, inside, DV, O)
