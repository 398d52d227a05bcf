"""The output of a chunk of queries: what its states hold, and the pairs inside the chunk."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.tiles import (
    features_through_state,
    load_features,
    load_tile,
    pair_weights,
    store_tile,
)


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
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos_q is None else 2 * D
    chunks = tl.cdiv(N, C)
    t = tl.program_id(0) % chunks
    bh = (tl.program_id(0) // chunks).to(tl.int64)
    b = bh // (G * R)
    h = bh - b * (G * R)
    g = h // R
    bg = b * G + g
    groups = (tl.num_programs(0) // chunks // R).to(tl.int64)
    columns = tl.program_id(1) * BV + tl.arange(0, BV)
    own = tl.arange(0, C)
    rows = t * C + own
    inside = rows < N
    first = (t * C).to(tl.int64)
    q += b * q_b + h * q_h + first * q_n
    k += b * k_b + g * k_h + first * k_n
    v += b * v_b + g * v_h + first * v_n

    c = None
    s = None
    if cos_q is not None:
        c = tl.load(cos_q + b * cos_q_b + rows, mask=inside, other=0.0)
        s = tl.load(sin_q + b * cos_q_b + rows, mask=inside, other=0.0)
    ids = None
    reading = inside
    if segments is not None:
        ids = tl.load(segments + b * N + rows, mask=inside, other=0)
        reading = inside & (ids == tl.load(before + b * (chunks + 1) + t))
    at = bg * (F * E)
    if INNER:
        at = (t * groups + bg) * (F * E)
    O, d = features_through_state(
        q, q_n, own, reading, c, s, prefix + at, columns, D, DV, C, BK, BV, MAP, TY, NORM
    )
    if suffix is not None:
        reading = inside & (ids == tl.load(behind + b * (chunks + 1) + t + 1))
        O_more, d_more = features_through_state(
            q, q_n, own, reading, c, s, suffix + at, columns, D, DV, C, BK, BV, MAP, TY, NORM
        )
        O += O_more
        d += d_more
    if INNER:
        real = inside
        if mask is not None:
            real = inside & (tl.load(mask + b * N + rows, mask=inside, other=0) != 0)
        pairs = tl.zeros((C, C), tl.float32)
        for start in range(0, D, BK):
            features = start + tl.arange(0, BK)
            Q = load_features(q, own, q_n, features, inside, D, MAP, TY)
            K = load_features(k, own, k_n, features, real, D, MAP, TY)
            pairs = tl.dot(Q, tl.trans(K), pairs, input_precision="ieee")
        c_k = None
        s_k = None
        if cos_q is not None:
            c_k = tl.load(cos_k + b * cos_k_b + rows, mask=inside, other=0.0)
            s_k = tl.load(sin_k + b * cos_k_b + rows, mask=inside, other=0.0)
        pairs *= pair_weights(c, s, ids, c_k, s_k, ids, C, "lower" if CAUSAL else "")
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
