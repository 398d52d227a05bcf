"""Gradient of the queries, chunk by chunk.

Not one kernel with the keys': together they spill registers on sm_80 and sm_100.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.tiles import (
    feature_slope,
    load_features,
    load_tile,
    pair_weights,
    store_tile,
    values_through_state,
)


@triton.jit
def grad_q(
    q, k, v, grad, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, scale, low, prefix,
    suffix, dq, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, grad_b, grad_h, grad_n, cos_q_b,
    cos_k_b, N, G, R, D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr,
    CAUSAL: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks · B·H, tiles of D).

    Args:
        q, …, suffix: as in `output`.
        grad: ∂L/∂o (B, H, N, Dv), with strides, 1 along the last.
        scale, low: fp32 (B, H, N) of `grad_rows`; None = 1 and nothing.
        dq: (B, H, N, D) contiguous, written.
    """
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos_q is None else 2 * D
    chunks = tl.cdiv(N, C)
    t = tl.program_id(0) % chunks
    bh = (tl.program_id(0) // chunks).to(tl.int64)
    groups = (tl.num_programs(0) // chunks // R).to(tl.int64)
    b = bh // (G * R)
    h = bh - b * (G * R)
    g = h // R
    features = tl.program_id(1) * BK + tl.arange(0, BK)
    own = tl.arange(0, C)
    rows = t * C + own
    first = (t * C).to(tl.int64)
    inside = rows < N
    q += b * q_b + h * q_h + first * q_n
    k += b * k_b + g * k_h + first * k_n
    v += b * v_b + g * v_h + first * v_n
    grad += b * grad_b + h * grad_h + first * grad_n
    at = (b * G + g) * (F * E)
    if INNER:
        at = (t * groups + b * G + g) * (F * E)

    c = None
    s = None
    if cos_q is not None:
        c = tl.load(cos_q + b * cos_q_b + rows, mask=inside, other=0.0)
        s = tl.load(sin_q + b * cos_q_b + rows, mask=inside, other=0.0)
    alive = inside
    factor = tl.full((C,), 1.0, tl.float32)
    if scale is not None:
        factor = tl.load(scale + bh * N + rows, mask=inside, other=0.0)
        alive = inside & (factor != 0)
    down = tl.zeros((C,), tl.float32)
    if NORM:
        down = tl.load(low + bh * N + rows, mask=alive, other=0.0)
    ids = None
    reading = alive
    if segments is not None:
        ids = tl.load(segments + b * N + rows, mask=inside, other=0)
        reading = alive & (ids == tl.load(before + b * (chunks + 1) + t))
    dQ = values_through_state(
        grad, grad_n, own, reading, factor, down, c, s, prefix + at, features, D, DV, C, BK, BV, TY,
        NORM, True,
    )  # fmt: skip
    if suffix is not None:
        reading = alive & (ids == tl.load(behind + b * (chunks + 1) + t + 1))
        dQ += values_through_state(
            grad, grad_n, own, reading, factor, down, c, s, suffix + at, features, D, DV, C, BK, BV,
            TY, NORM, True,
        )  # fmt: skip
    if INNER:
        real = inside
        if mask is not None:
            real = inside & (tl.load(mask + b * N + rows, mask=inside, other=0) != 0)
        pairs = tl.zeros((C, C), tl.float32)
        for start in range(0, DV, BV):
            columns = start + tl.arange(0, BV)
            V = load_tile(v, own, v_n, columns, real, DV).to(TY)
            O = load_tile(grad, own, grad_n, columns, alive, DV).to(TY)
            pairs = tl.dot(O, tl.trans(V), pairs, input_precision="ieee")
        c_k = None
        s_k = None
        if cos_q is not None:
            c_k = tl.load(cos_k + b * cos_k_b + rows, mask=inside, other=0.0)
            s_k = tl.load(sin_k + b * cos_k_b + rows, mask=inside, other=0.0)
        weight = pair_weights(c, s, ids, c_k, s_k, ids, C, "lower" if CAUSAL else "")
        pairs = (pairs + down[:, None]) * factor[:, None] * weight
        K = load_features(k, own, k_n, features, real, D, MAP, TY)
        dQ = tl.dot(pairs.to(TY), K, dQ, input_precision="ieee")
    raw = load_tile(q, own, q_n, features, alive, D).to(tl.float32)
    dQ = tl.where(alive[:, None], dQ * feature_slope(raw, MAP), 0.0)
    store_tile(dq + (bh * N + first) * D, own, D, features, inside, D, dQ)
