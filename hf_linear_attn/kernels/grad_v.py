"""Gradient of the values, chunk by chunk."""

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
from hf_linear_attn.kernels.tiles import load_tile, pair_weights, products, store_tile


@triton.jit
def grad_v(
    q, k, grad, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, scale, prefix, suffix,
    result, q_b, q_h, q_n, k_b, k_h, k_n, grad_b, grad_h, grad_n, cos_q_b, cos_k_b, N, G, R,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, CAUSAL: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks of keys · B·G, tiles of Dv).

    Args:
        q, …, suffix: as in `grad_k`; N counts keys, which are queries with INNER.
        result: (B, G, N, Dv) contiguous, written.
    """
    t, first, own, rows, inside, bg = own_chunk(N, C)
    b = bg // G
    g = bg - b * G
    columns = tl.program_id(1) * BV + tl.arange(0, BV)
    k += b * k_b + g * k_h + first * k_n

    real = real_keys(mask, b * N, rows, inside)
    c = load_rows(cos_k, b * cos_k_b, rows, inside)
    s = load_rows(sin_k, b * cos_k_b, rows, inside)
    ids = load_rows(segments, b * N, rows, inside)
    # The state has sums of its features, of which values know nothing.
    at = own_state(t, bg, N, 1, cos_k, C, D, DV, NORM, INNER)
    dV, _ = through_states(
        k, k_n, own, real, None, ids, before, behind, b * (tl.cdiv(N, C) + 1) + t, c, s, prefix,
        suffix, at, columns, D, DV, C, BK, BV, MAP, TY, False, "keys",
    )  # fmt: skip
    if INNER:
        weight = pair_weights(
            c, s, cos_q, sin_q, b * cos_q_b, ids, rows, inside, C, "upper" if CAUSAL else ""
        )
        for j in range(0, R):
            h = g * R + j
            of_query = q + b * q_b + h * q_h + first * q_n
            of_grad = grad + b * grad_b + h * grad_h + first * grad_n
            alive, factor, _ = live_rows(scale, None, (b * G * R + h) * N, rows, inside, C, False)
            pairs = products(k, k_n, real, of_query, q_n, alive, own, D, BK, C, MAP, TY)
            pairs = pairs * weight * factor[None, :]
            O = load_tile(of_grad, own, grad_n, columns, alive, DV)
            dV = tl.dot(pairs.to(TY), O.to(TY), dV, input_precision="ieee")
    dV = tl.where(real[:, None], dV, 0.0)
    store_tile(result + (bg * N + first) * DV, own, DV, columns, inside, DV, dV)
