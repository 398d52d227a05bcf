"""Gradients of queries and keys, chunk by chunk."""

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
def grad_qk(
    q, k, v, grad, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, scale, low, prefix,
    suffix, prefix_grad, suffix_grad, dq, dk, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, grad_b,
    grad_h, grad_n, cos_q_b, cos_k_b, N, M, G, R,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, CAUSAL: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks · B·G, tiles of D), with chunks for the longer of queries and keys.

    Args:
        q, …, suffix: as in `output`; keys and values have M rows, which are N with INNER.
        grad: ∂L/∂o (B, H, N, Dv), with strides, 1 along the last.
        scale, low: fp32 (B, H, N) of `grad_rows`; None = 1 and nothing.
        prefix_grad, suffix_grad: fp32 (chunks, B·G, F·E), ∂L/∂(state a chunk hands on) of either
            direction; one for all without INNER.
        dq, dk: (B, H, N, D) and (B, G, M, D), contiguous, written.
    """
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos_q is None else 2 * D
    chunks = tl.cdiv(tl.maximum(N, M), C)
    t = tl.program_id(0) % chunks
    bg = (tl.program_id(0) // chunks).to(tl.int64)
    groups = (tl.num_programs(0) // chunks).to(tl.int64)
    b = bg // G
    g = bg - b * G
    features = tl.program_id(1) * BK + tl.arange(0, BK)
    own = tl.arange(0, C)
    rows = t * C + own
    first = (t * C).to(tl.int64)
    real = rows < M
    if mask is not None:
        real = real & (tl.load(mask + b * M + rows, mask=rows < M, other=0) != 0)
    k += b * k_b + g * k_h + first * k_n
    v += b * v_b + g * v_h + first * v_n
    at = bg * (F * E)
    if INNER:
        at = (t * groups + bg) * (F * E)
    c_q = None
    s_q = None
    c_k = None
    s_k = None
    if cos_q is not None:
        c_q = tl.load(cos_q + b * cos_q_b + rows, mask=rows < N, other=0.0)
        s_q = tl.load(sin_q + b * cos_q_b + rows, mask=rows < N, other=0.0)
        c_k = tl.load(cos_k + b * cos_k_b + rows, mask=rows < M, other=0.0)
        s_k = tl.load(sin_k + b * cos_k_b + rows, mask=rows < M, other=0.0)
    ids = None
    read = rows < N
    write = real
    if segments is not None:
        ids = tl.load(segments + b * N + rows, mask=rows < N, other=0)
        read = read & (ids == tl.load(before + b * (chunks + 1) + t))
        write = real & (ids == tl.load(before + b * (chunks + 1) + t + 1))

    one = tl.full((C,), 1.0, tl.float32)
    dK = values_through_state(
        v, v_n, own, write, one, one, c_k, s_k, prefix_grad + at, features, D, DV, C, BK, BV, TY,
        NORM, False,
    )  # fmt: skip
    if suffix_grad is not None:
        write = real & (ids == tl.load(behind + b * (chunks + 1) + t))
        dK += values_through_state(
            v, v_n, own, write, one, one, c_k, s_k, suffix_grad + at, features, D, DV, C, BK, BV,
            TY, NORM, False,
        )  # fmt: skip

    for j in range(0, R):
        h = g * R + j
        of_query = q + b * q_b + h * q_h + first * q_n
        of_grad = grad + b * grad_b + h * grad_h + first * grad_n
        place = (b * G * R + h) * N
        alive = rows < N
        factor = one
        if scale is not None:
            factor = tl.load(scale + place + rows, mask=rows < N, other=0.0)
            alive = alive & (factor != 0)
        down = tl.zeros((C,), tl.float32)
        if NORM:
            down = tl.load(low + place + rows, mask=alive, other=0.0)
        dQ = values_through_state(
            of_grad, grad_n, own, alive & read, factor, down, c_q, s_q, prefix + at, features, D,
            DV, C, BK, BV, TY, NORM, True,
        )  # fmt: skip
        if suffix is not None:
            reading = alive & (ids == tl.load(behind + b * (chunks + 1) + t + 1))
            dQ += values_through_state(
                of_grad, grad_n, own, reading, factor, down, c_q, s_q, suffix + at, features, D,
                DV, C, BK, BV, TY, NORM, True,
            )  # fmt: skip
        if INNER:
            # Both the gradient of the pairs and its transpose: on Hopper a transposed product must
            # not become an operand.
            pairs = tl.zeros((C, C), tl.float32)
            flipped = tl.zeros((C, C), tl.float32)
            for start in range(0, DV, BV):
                columns = start + tl.arange(0, BV)
                V = load_tile(v, own, v_n, columns, real, DV).to(TY)
                O = load_tile(of_grad, own, grad_n, columns, alive, DV).to(TY)
                pairs = tl.dot(O, tl.trans(V), pairs, input_precision="ieee")
                flipped = tl.dot(V, tl.trans(O), flipped, input_precision="ieee")
            if CAUSAL:
                weight = pair_weights(c_q, s_q, ids, c_k, s_k, ids, C, "lower")
                turned = pair_weights(c_k, s_k, ids, c_q, s_q, ids, C, "upper")
            else:
                weight = pair_weights(c_q, s_q, ids, c_k, s_k, ids, C, "")
                turned = pair_weights(c_k, s_k, ids, c_q, s_q, ids, C, "")
            pairs = (pairs + down[:, None]) * factor[:, None] * weight
            flipped = (flipped + down[None, :]) * factor[None, :] * turned
            K = load_features(k, own, k_n, features, real, D, MAP, TY)
            dQ = tl.dot(pairs.to(TY), K, dQ, input_precision="ieee")
            Q = load_features(of_query, own, q_n, features, alive, D, MAP, TY)
            dK = tl.dot(flipped.to(TY), Q, dK, input_precision="ieee")
        raw = load_tile(of_query, own, q_n, features, alive, D).to(tl.float32)
        dQ = tl.where(alive[:, None], dQ * feature_slope(raw, MAP), 0.0)
        store_tile(dq + (place + first) * D, own, D, features, rows < N, D, dQ)
    raw = load_tile(k, own, k_n, features, real, D).to(tl.float32)
    dK = tl.where(real[:, None], dK * feature_slope(raw, MAP), 0.0)
    store_tile(dk + (bg * M + first) * D, own, D, features, rows < M, D, dK)
