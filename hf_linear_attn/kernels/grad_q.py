"""Gradient of the queries, chunk by chunk.

Not one kernel with the keys': together they spill registers on sm_80 and sm_100.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.own_rows import (
    live_rows,
    load_rows,
    own_chunk,
    own_heads,
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
def grad_q(
    q, k, v, grad, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, scale, low, prefix,
    suffix, result, q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, grad_b, grad_h, grad_n, cos_q_b,
    cos_k_b, N, G, R,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, CAUSAL: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks · B·H, tiles of D).

    Args:
        q, …, suffix: as in `output`.
        grad: ∂L/∂o (B, H, N, Dv), with strides, 1 along the last.
        scale, low: fp32 (B, H, N) of `grad_rows`; None = 1 and nothing.
        result: (B, H, N, D) contiguous, written.
    """
    t, first, own, rows, inside, bh = own_chunk(N, C)
    b, h, g, bg = own_heads(bh, G, R)
    features = tl.program_id(1) * BK + tl.arange(0, BK)
    q += b * q_b + h * q_h + first * q_n
    k += b * k_b + g * k_h + first * k_n
    v += b * v_b + g * v_h + first * v_n
    grad += b * grad_b + h * grad_h + first * grad_n

    c = load_rows(cos_q, b * cos_q_b, rows, inside)
    s = load_rows(sin_q, b * cos_q_b, rows, inside)
    alive, factor, down = live_rows(scale, low, bh * N, rows, inside, C, NORM)
    ids = load_rows(segments, b * N, rows, inside)
    dQ, _ = through_states(
        grad, grad_n, own, alive, down, ids, before, behind, b * (tl.cdiv(N, C) + 1) + t, c, s,
        prefix, suffix, own_state(t, bg, N, R, cos_q, C, D, DV, NORM, INNER), features, D, DV, C,
        BK, BV, MAP, TY, NORM, "gradients",
    )  # fmt: skip
    dQ *= factor[:, None]
    if INNER:
        real = real_keys(mask, b * N, rows, inside)
        pairs = products(grad, grad_n, alive, v, v_n, real, own, DV, BV, C, "identity", TY)
        weight = pair_weights(
            c, s, cos_k, sin_k, b * cos_k_b, ids, rows, inside, C, "lower" if CAUSAL else ""
        )
        pairs = (pairs + down[:, None]) * factor[:, None] * weight
        K = load_features(k, own, k_n, features, real, D, MAP, TY)
        dQ = tl.dot(pairs.to(TY), K, dQ, input_precision="ieee")
    raw = load_tile(q, own, q_n, features, alive, D).to(tl.float32)
    dQ = tl.where(alive[:, None], dQ * feature_slope(raw, MAP), 0.0)
    store_tile(result + (bh * N + first) * D, own, D, features, inside, D, dQ)
