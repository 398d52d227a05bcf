"""What a chunk reads of the states beside it.

A state of F features is F rows of Dv numbers and, with a normaliser, F numbers more behind them:
so its rows stay aligned. F = D, or 2D with angles: the features times cos, then times sin.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.own_rows import of_document
from hf_linear_attn.kernels.tiles import load_features, load_tile


@triton.jit
def through_states(
    x, stride, own, there, low, ids, before, behind, border, cos, sin, prefix, suffix, at, tile,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, WHAT: tl.constexpr,
):  # fmt: skip
    """What a chunk reads of the prefix state and, where there is one, of the suffix state; fp32.

    Args:
        there: rows that count; low: as in `_values_through_state`.
        ids, before, behind: see `output`; None = one document.
        border: offset in `before` and `behind` of the border at which the chunk begins.
        at: offset of the chunk's states.
        tile: value columns if x is mapped by φ, else features.
        WHAT: what x is. "queries" and "gradients" read the states a chunk is given, "keys" and
            "values" the gradients of those it hands on.

    Returns:
        (C, BV) and the normaliser (C,) if x is mapped by φ, else (C, BK) and 0.
    """
    HANDED: tl.constexpr = 1 if WHAT == "keys" or WHAT == "values" else 0
    reading = of_document(there, ids, before, border + HANDED)
    out, total = _through_state(
        x, stride, own, reading, low, cos, sin, prefix + at, tile, D, DV, C, BK, BV, MAP, TY, NORM,
        WHAT,
    )  # fmt: skip
    if suffix is not None:
        reading = of_document(there, ids, behind, border + 1 - HANDED)
        more, more_total = _through_state(
            x, stride, own, reading, low, cos, sin, suffix + at, tile, D, DV, C, BK, BV, MAP, TY,
            NORM, WHAT,
        )  # fmt: skip
        out += more
        total += more_total
    return out, total


@triton.jit
def _through_state(
    x, stride, own, reading, low, cos, sin, state, tile, D: tl.constexpr, DV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, MAP: tl.constexpr, TY: tl.constexpr,
    NORM: tl.constexpr, WHAT: tl.constexpr,
):  # fmt: skip
    F: tl.constexpr = D if cos is None else 2 * D
    if WHAT == "queries" or WHAT == "keys":
        out, total = _features_through_state(
            x, stride, own, reading, cos, sin, state, state + F * DV, tile, D, DV, C, BK, BV, MAP,
            TY, NORM,
        )  # fmt: skip
    else:
        total = tl.zeros((C,), tl.float32)
        out = _values_through_state(
            x,
            stride,
            own,
            reading,
            low,
            state,
            state + F * DV,
            tile,
            D,
            DV,
            C,
            BK,
            BV,
            TY,
            NORM,
            WHAT,
        )
        if cos is not None:
            half = _values_through_state(
                x, stride, own, reading, low, state + D * DV, state + F * DV + D, tile, D, DV, C,
                BK, BV, TY, NORM, WHAT,
            )  # fmt: skip
            out = out * cos[:, None] + half * sin[:, None]
    return out, total


@triton.jit
def _features_through_state(
    x, stride, rows, inside, cos, sin, state, sums, columns, D: tl.constexpr, DV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, MAP: tl.constexpr, TY: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """φ(x)·S of a chunk for BV columns (C, BV), and φ(x)·z (C,), 0 without normaliser; fp32."""
    out = tl.zeros((C, BV), tl.float32)
    out_sin = tl.zeros((C, BV), tl.float32)
    low = tl.zeros((C,), tl.float32)
    low_sin = tl.zeros((C,), tl.float32)
    for start in range(0, D, BK):
        features = start + tl.arange(0, BK)
        X = load_features(x, rows, stride, features, inside, D, MAP, TY)
        out, low = _features_through_tile(
            X, out, low, state, sums, features, columns, D, DV, TY, NORM
        )
        if cos is not None:
            out_sin, low_sin = _features_through_tile(
                X, out_sin, low_sin, state + D * DV, sums + D, features, columns, D, DV, TY, NORM
            )
    if cos is not None:
        # The rows are scaled here and not as operands: that would cost registers and rounding.
        out = out * cos[:, None] + out_sin * sin[:, None]
        low = low * cos + low_sin * sin
    return out, low


@triton.jit
def _features_through_tile(
    X, out, low, state, sums, features, columns, D: tl.constexpr, DV: tl.constexpr,
    TY: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """out + X·S and low + X·z, for the features of a tile."""
    S = load_state(state, features, columns, D, DV, False)
    if NORM:
        z = tl.load(sums + features, mask=features < D, other=0.0)
        reads = tl.sum(X.to(tl.float32) * z[None, :], 1)
        low += reads
        if tl.bfloat16 == TY:
            mean = mean_of_state(S, z, 0)
            S -= z[:, None] * mean[None, :]
            out += reads[:, None] * mean[None, :]
    return tl.dot(X, S.to(TY), out, input_precision="ieee"), low


@triton.jit
def mean_of_state(S, z, FEATURES: tl.constexpr):
    """What the values of a state have in common: the c for which z·cᵀ is nearest to S.

    Where values have a mean, S is close to z·meanᵀ, and in the gradients that part all but cancels
    against the normaliser's. Rounded to 16 bits it would leave noise; so it is taken out of S and
    added in fp32.

    Args:
        S: a tile, z: its features' sums, along the axis FEATURES of the tile.
    """
    products = S * z[:, None] if FEATURES == 0 else S * z[None, :]
    size = tl.sum(z * z, 0)
    return tl.sum(products, FEATURES) / tl.where(size > 0, size, 1.0)


@triton.jit
def _values_through_state(
    y, stride, rows, inside, low, state, sums, features, D: tl.constexpr, DV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr,
    WHAT: tl.constexpr,
):  # fmt: skip
    """y·Sᵀ + low·zᵀ of a chunk for BK features (C, BK); fp32.

    Args:
        low: (C,) fp32; counts with a normaliser only.
        WHAT: y are "gradients" and the state is one of keys and values, or it is the other way
            round and y are "values".
    """
    CENTRE: tl.constexpr = NORM and tl.bfloat16 == TY
    out = tl.zeros((C, BK), tl.float32)
    common = tl.where(inside, low, 0.0)
    z = tl.zeros((BK,), tl.float32)
    if NORM:
        z = tl.load(sums + features, mask=features < D, other=0.0)
    lift = tl.zeros((BK,), tl.float32)
    for start in range(0, DV, BV):
        columns = start + tl.arange(0, BV)
        Y = load_tile(y, rows, stride, columns, inside, DV).to(TY)
        S = load_state(state, features, columns, D, DV, True)
        if CENTRE:
            wide = Y.to(tl.float32)
            if WHAT == "gradients":
                mean = mean_of_state(S, z, 1)
                S -= mean[:, None] * z[None, :]
                common += tl.sum(wide * mean[None, :], 1)
            else:
                # Here it is y, the values, that has the mean.
                mean = tl.sum(wide, 0) / tl.maximum(tl.sum(inside.to(tl.float32), 0), 1.0)
                Y = tl.where(inside[:, None], wide - mean[None, :], 0.0).to(TY)
                lift += tl.sum(S * mean[:, None], 0)
        out = tl.dot(Y, S.to(TY), out, input_precision="ieee")
    if NORM:
        out += common[:, None] * z[None, :]
    if CENTRE and WHAT == "values":
        out += tl.where(inside, 1.0, 0.0)[:, None] * lift[None, :]
    return out


@triton.jit
def load_state(
    state, features, columns, D: tl.constexpr, DV: tl.constexpr, FLIP: tl.constexpr
):  # fmt: skip
    """A tile (features, columns) of a state, or its transpose (FLIP); fp32."""
    if FLIP:
        offsets = features[None, :] * DV + columns[:, None]
        mask = (features < D)[None, :] & (columns < DV)[:, None]
    else:
        offsets = features[:, None] * DV + columns[None, :]
        mask = (features < D)[:, None] & (columns < DV)[None, :]
    return tl.load(state + offsets, mask=mask, other=0.0)
