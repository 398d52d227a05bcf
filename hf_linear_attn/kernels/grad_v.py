"""Gradient of the values, chunk by chunk."""

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
def grad_v(
    q, k, grad, cos_q, sin_q, cos_k, sin_k, mask, segments, before, behind, scale, prefix_grad,
    suffix_grad, dv, q_b, q_h, q_n, k_b, k_h, k_n, grad_b, grad_h, grad_n, cos_q_b, cos_k_b, N, G,
    R, D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, CAUSAL: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    """Grid (chunks of keys · B·G, tiles of Dv).

    Args:
        q, …, suffix_grad: as in `grad_k`; N counts keys, which are queries with INNER.
        dv: (B, G, N, Dv) contiguous, written.
    """
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos_k is None else 2 * D
    chunks = tl.cdiv(N, C)
    t = tl.program_id(0) % chunks
    bg = (tl.program_id(0) // chunks).to(tl.int64)
    groups = (tl.num_programs(0) // chunks).to(tl.int64)
    b = bg // G
    g = bg - b * G
    columns = tl.program_id(1) * BV + tl.arange(0, BV)
    own = tl.arange(0, C)
    rows = t * C + own
    first = (t * C).to(tl.int64)
    inside = rows < N
    real = inside
    if mask is not None:
        real = inside & (tl.load(mask + b * N + rows, mask=inside, other=0) != 0)
    k += b * k_b + g * k_h + first * k_n
    at = bg * (F * E)
    if INNER:
        at = (t * groups + bg) * (F * E)
    c_k = None
    s_k = None
    if cos_k is not None:
        c_k = tl.load(cos_k + b * cos_k_b + rows, mask=inside, other=0.0)
        s_k = tl.load(sin_k + b * cos_k_b + rows, mask=inside, other=0.0)
    ids = None
    write = real
    if segments is not None:
        ids = tl.load(segments + b * N + rows, mask=inside, other=0)
        write = real & (ids == tl.load(before + b * (chunks + 1) + t + 1))
    dV, _ = features_through_state(
        k, k_n, own, write, c_k, s_k, prefix_grad + at, columns, D, DV, C, BK, BV, MAP, TY, False
    )
    if suffix_grad is not None:
        write = real & (ids == tl.load(behind + b * (chunks + 1) + t))
        more, _ = features_through_state(
            k, k_n, own, write, c_k, s_k, suffix_grad + at, columns, D, DV, C, BK, BV, MAP, TY,
            False,
        )  # fmt: skip
        dV += more
    if INNER:
        c_q = None
        s_q = None
        if cos_k is not None:
            c_q = tl.load(cos_q + b * cos_q_b + rows, mask=inside, other=0.0)
            s_q = tl.load(sin_q + b * cos_q_b + rows, mask=inside, other=0.0)
        weight = pair_weights(c_k, s_k, ids, c_q, s_q, ids, C, "upper" if CAUSAL else "")
        for j in range(0, R):
            h = g * R + j
            alive = inside
            factor = tl.full((C,), 1.0, tl.float32)
            if scale is not None:
                factor = tl.load(scale + (b * G * R + h) * N + rows, mask=inside, other=0.0)
                alive = inside & (factor != 0)
            of_query = q + b * q_b + h * q_h + first * q_n
            of_grad = grad + b * grad_b + h * grad_h + first * grad_n
            pairs = tl.zeros((C, C), tl.float32)
            for start in range(0, D, BK):
                features = start + tl.arange(0, BK)
                K = load_features(k, own, k_n, features, real, D, MAP, TY)
                Q = load_features(of_query, own, q_n, features, alive, D, MAP, TY)
                pairs = tl.dot(K, tl.trans(Q), pairs, input_precision="ieee")
            pairs = pairs * weight * factor[None, :]
            O = load_tile(of_grad, own, grad_n, columns, alive, DV)
            dV = tl.dot(pairs.to(TY), O.to(TY), dV, input_precision="ieee")
    dV = tl.where(real[:, None], dV, 0.0)
    store_tile(dv + (bg * N + first) * DV, own, DV, columns, inside, DV, dV)
