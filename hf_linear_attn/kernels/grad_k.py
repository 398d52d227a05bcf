"""Gradient of the keys, chunk by chunk."""

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
def grad_k(
    q, k, v, grad, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, scale, low,
    prefix_grad, suffix_grad, dk, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, grad_b, grad_h,
    grad_n, cos_q_b, cos_k_b, N, G, R, D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr,
    CAUSAL: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks of keys · B·G, tiles of D).

    Args:
        q, …, low: as in `grad_q`; N counts keys, which are queries with INNER.
        prefix_grad, suffix_grad: fp32 (chunks, B·G, F·E), ∂L/∂(state a chunk hands on) of either
            direction; one for all without INNER.
        dk: (B, G, N, D) contiguous, written.
    """
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos_k is None else 2 * D
    chunks = tl.cdiv(N, C)
    t = tl.program_id(0) % chunks
    bg = (tl.program_id(0) // chunks).to(tl.int64)
    groups = (tl.num_programs(0) // chunks).to(tl.int64)
    b = bg // G
    g = bg - b * G
    features = tl.program_id(1) * BK + tl.arange(0, BK)
    own = tl.arange(0, C)
    rows = t * C + own
    first = (t * C).to(tl.int64)
    inside = rows < N
    real = inside
    if mask is not None:
        real = inside & (tl.load(mask + b * N + rows, mask=inside, other=0) != 0)
    k += b * k_b + g * k_h + first * k_n
    v += b * v_b + g * v_h + first * v_n
    at = bg * (F * E)
    if INNER:
        at = (t * groups + bg) * (F * E)

    c = None
    s = None
    if cos_k is not None:
        c = tl.load(cos_k + b * cos_k_b + rows, mask=inside, other=0.0)
        s = tl.load(sin_k + b * cos_k_b + rows, mask=inside, other=0.0)
    ids = None
    writing = real
    if segments is not None:
        ids = tl.load(segments + b * N + rows, mask=inside, other=0)
        writing = real & (ids == tl.load(before + b * (chunks + 1) + t + 1))
    one = tl.full((C,), 1.0, tl.float32)
    dK = values_through_state(
        v, v_n, own, writing, one, one, c, s, prefix_grad + at, features, D, DV, C, BK, BV, TY,
        NORM, False,
    )  # fmt: skip
    if suffix_grad is not None:
        writing = real & (ids == tl.load(behind + b * (chunks + 1) + t))
        dK += values_through_state(
            v, v_n, own, writing, one, one, c, s, suffix_grad + at, features, D, DV, C, BK, BV, TY,
            NORM, False,
        )  # fmt: skip
    if INNER:
        c_q = None
        s_q = None
        if cos_k is not None:
            c_q = tl.load(cos_q + b * cos_q_b + rows, mask=inside, other=0.0)
            s_q = tl.load(sin_q + b * cos_q_b + rows, mask=inside, other=0.0)
        for j in range(0, R):
            h = g * R + j
            place = (b * G * R + h) * N
            of_query = q + b * q_b + h * q_h + first * q_n
            of_grad = grad + b * grad_b + h * grad_h + first * grad_n
            alive = inside
            factor = one
            if scale is not None:
                factor = tl.load(scale + place + rows, mask=inside, other=0.0)
                alive = inside & (factor != 0)
            down = tl.zeros((C,), tl.float32)
            if NORM:
                down = tl.load(low + place + rows, mask=alive, other=0.0)
            # Keys along the rows from the start: on Hopper a transposed product must not become an
            # operand.
            pairs = tl.zeros((C, C), tl.float32)
            for start in range(0, DV, BV):
                columns = start + tl.arange(0, BV)
                V = load_tile(v, own, v_n, columns, real, DV).to(TY)
                O = load_tile(of_grad, own, grad_n, columns, alive, DV).to(TY)
                pairs = tl.dot(V, tl.trans(O), pairs, input_precision="ieee")
            weight = pair_weights(c, s, ids, c_q, s_q, ids, C, "upper" if CAUSAL else "")
            pairs = (pairs + down[None, :]) * factor[None, :] * weight
            Q = load_features(of_query, own, q_n, features, alive, D, MAP, TY)
            dK = tl.dot(pairs.to(TY), Q, dK, input_precision="ieee")
    raw = load_tile(k, own, k_n, features, real, D).to(tl.float32)
    dK = tl.where(real[:, None], dK * feature_slope(raw, MAP), 0.0)
    store_tile(dk + (bg * N + first) * D, own, D, features, inside, D, dK)
