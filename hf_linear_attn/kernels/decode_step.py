"""One token of causal linear attention: the state is read, advanced and written once."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.tiles import feature_map


@triton.jit
def decode_step(
    q, k, v, cos_q, sin_q, cos_k, sin_k, mask, state, out, new, q_b, q_h, k_b, k_h, v_b, v_h,
    cos_q_b, cos_k_b, G, R, eps, D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr,
    BV: tl.constexpr, MAP: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Grid (B·G, tiles of Dv); all sums are fp32.

    Args:
        q: (B, H, 1, D), k: (B, G, 1, D), v: (B, G, 1, Dv), with strides, 1 along the last.
        cos_q, …, sin_k: fp32 (B or 1, 1), or None.
        mask: uint8 (B, 1) or None; a pad leaves the state as it is.
        state: fp32 (B·G, F, E) or None = 0; new: the same, written.
        out: (B, H, 1, Dv) contiguous.
        BD: a power of two from D on.
    """
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos_q is None else 2 * D
    bg = tl.program_id(0).to(tl.int64)
    b = bg // G
    g = bg - b * G
    features = tl.arange(0, BD)
    columns = tl.program_id(1) * BV + tl.arange(0, BV)
    rows = features < D
    inside = rows[:, None] & (columns < DV)[None, :]
    cells = bg * (F * E) + features[:, None] * E + columns[None, :]
    sums = bg * (F * E) + features * E + DV

    real = rows
    real_columns = columns < DV
    if mask is not None:
        # Not loaded at all: whatever stands at a pad must not get through.
        there = tl.load(mask + b) != 0
        real = features < tl.where(there, D, 0)
        real_columns = columns < tl.where(there, DV, 0)
    K = feature_map(
        tl.load(k + b * k_b + g * k_h + features, mask=real, other=0.0).to(tl.float32), MAP
    )
    K = tl.where(real, K, 0.0)
    V = tl.load(v + b * v_b + g * v_h + columns, mask=real_columns, other=0.0).to(tl.float32)
    K_sin = K
    if cos_q is not None:
        K_sin = K * tl.load(sin_k + b * cos_k_b)
        K = K * tl.load(cos_k + b * cos_k_b)
    S = K[:, None] * V[None, :]
    S_sin = K_sin[:, None] * V[None, :]
    z = K
    z_sin = K_sin
    if state is not None:
        S += tl.load(state + cells, mask=inside, other=0.0)
        if NORM:
            z += tl.load(state + sums, mask=rows, other=0.0)
        if cos_q is not None:
            S_sin += tl.load(state + D * E + cells, mask=inside, other=0.0)
            if NORM:
                z_sin += tl.load(state + D * E + sums, mask=rows, other=0.0)
    tl.store(new + cells, S, mask=inside)
    if cos_q is not None:
        tl.store(new + D * E + cells, S_sin, mask=inside)
    if NORM:
        if tl.program_id(1) == 0:
            tl.store(new + sums, z, mask=rows)
            if cos_q is not None:
                tl.store(new + D * E + sums, z_sin, mask=rows)

    for j in range(0, R):
        h = g * R + j
        Q = feature_map(
            tl.load(q + b * q_b + h * q_h + features, mask=rows, other=0.0).to(tl.float32), MAP
        )
        Q = tl.where(rows, Q, 0.0)
        if cos_q is None:
            O = tl.sum(Q[:, None] * S, 0)
            d = tl.sum(Q * z, 0)
        else:
            c = tl.load(cos_q + b * cos_q_b)
            s = tl.load(sin_q + b * cos_q_b)
            O = tl.sum(Q[:, None] * (S * c + S_sin * s), 0)
            d = tl.sum(Q * (z * c + z_sin * s), 0)
        if NORM:
            O = tl.where(d <= 0, 0.0, O / tl.where(d < eps, eps, d))
        place = out + (b * G * R + h) * DV + columns
        tl.store(place, O.to(out.dtype.element_ty), mask=columns < DV)
