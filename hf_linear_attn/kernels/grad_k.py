"""Gradient of the keys, chunk by chunk."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.own_rows import (
    live_rows,
    load_rows,
    own_chunk,
    own_state,
    real_keys,
)
from hf_linear_attn.kernels.through_states import through_states
from hf_linear_attn.kernels.tiles import (
    feature_slope,
    load_features,
    load_tile,
    pair_weights,
    products,
    store_tile,
)


@triton.jit
def grad_k(
    q, k, v, grad, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, scale, low, prefix,
    suffix, result, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, grad_b, grad_h, grad_n, cos_q_b,
    cos_k_b, N, G, R,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, CAUSAL: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks of keys · B·G, tiles of D).

    Args:
        q, …, low: as in `grad_q`; N counts keys, which are queries with INNER.
        prefix, suffix: fp32 (chunks, B·G, F·E), ∂L/∂(state a chunk hands on) of either direction;
            one for all without INNER.
        result: (B, G, N, D) contiguous, written.
    """
    t, first, own, rows, inside, bg = own_chunk(N, C)
    b = bg // G
    g = bg - b * G
    features = tl.program_id(1) * BK + tl.arange(0, BK)
    k += b * k_b + g * k_h + first * k_n
    v += b * v_b + g * v_h + first * v_n

    real = real_keys(mask, b * N, rows, inside)
    c = load_rows(cos_k, b * cos_k_b, rows, inside)
    s = load_rows(sin_k, b * cos_k_b, rows, inside)
    ids = load_rows(segments, b * N, rows, inside)
    one = tl.full((C,), 1.0, tl.float32)
    dK, _ = through_states(
        v, v_n, own, real, one, ids, before, behind, b * (tl.cdiv(N, C) + 1) + t, c, s, prefix,
        suffix, own_state(t, bg, N, 1, cos_k, C, D, DV, NORM, INNER), features, D, DV, C, BK, BV,
        MAP, TY, NORM, "values",
    )  # fmt: skip
    if INNER:
        for j in range(0, R):
            h = g * R + j
            of_query = q + b * q_b + h * q_h + first * q_n
            of_grad = grad + b * grad_b + h * grad_h + first * grad_n
            alive, factor, down = live_rows(scale, low, (b * G * R + h) * N, rows, inside, C, NORM)
            # Keys along the rows from the start: on Hopper a transposed product must not become an
            # operand.
            pairs = products(v, v_n, real, of_grad, grad_n, alive, own, DV, BV, C, "identity", TY)
            weight = pair_weights(
                c, s, cos_q, sin_q, b * cos_q_b, ids, rows, inside, C, "upper" if CAUSAL else ""
            )
            pairs = (pairs + down[None, :]) * factor[None, :] * weight
            Q = load_features(of_query, own, q_n, features, alive, D, MAP, TY)
            dK = tl.dot(pairs.to(TY), Q, dK, input_precision="ieee")
    raw = load_tile(k, own, k_n, features, real, D).to(tl.float32)
    dK = tl.where(real[:, None], dK * feature_slope(raw, MAP), 0.0)
    store_tile(result + (bg * N + first) * D, own, D, features, inside, D, dK)
