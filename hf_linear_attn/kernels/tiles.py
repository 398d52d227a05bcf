"""What the kernels share: loads, feature maps, the weights of pairs, products with a state.

Letters as in `hf_linear_attn.ops.operands`, and C rows of a chunk, BK features and BV value columns
of a tile. Matrix products take operands of type TY and add up in fp32; where TY is fp32 they are
IEEE products, never TF32. A tensor may hold more than 2³¹ elements: bases are moved to the first
row of a chunk by int64 offsets, offsets from there on are int32, which saves registers.

A state of F features is F rows of Dv numbers and, with a normaliser, F numbers more behind them:
so its rows stay aligned. F = D, or 2D with angles: the features times cos, then times sin.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl


@triton.jit
def feature_map(x, MAP: tl.constexpr):
    """φ(x), fp32."""
    if MAP == "relu":
        # Not a maximum, which would make 0 of NaN.
        y = tl.where(x <= 0, 0.0, x)
    elif MAP == "elu_plus_one":
        y = tl.where(x > 0, x + 1, tl.exp(tl.where(x > 0, 0.0, x)))
    elif MAP == "elu":
        low = tl.where(x > 0, 0.0, x)
        # exp(x) − 1 loses everything near 0: a Taylor polynomial there, exact to 1e-8.
        near = 1 + low / 5 * (1 + low / 6 * (1 + low / 7 * (1 + low / 8)))
        near = low * (1 + low / 2 * (1 + low / 3 * (1 + low / 4 * near)))
        y = tl.where(x > 0, x, tl.where(low > -0.5, near, tl.exp(low) - 1))
    else:
        y = x
    return y


@triton.jit
def feature_slope(x, MAP: tl.constexpr):
    """φ'(x), fp32; 0 at 0 for ReLU, as in PyTorch."""
    if MAP == "relu":
        slope = tl.where(x > 0, 1.0, 0.0)
    elif MAP == "identity":
        slope = tl.full(x.shape, 1.0, tl.float32)
    else:
        slope = tl.exp(tl.where(x > 0, 0.0, x))
    return slope


@triton.jit
def load_tile(base, rows, stride, columns, inside, WIDTH: tl.constexpr):
    """(rows, columns) of a matrix; 0 where a row is not `inside` or a column beyond WIDTH.

    Args:
        base: of row 0; rows: int32 from there, with rows · stride below 2³¹.
    """
    offsets = rows[:, None] * stride + columns[None, :]
    return tl.load(base + offsets, mask=inside[:, None] & (columns < WIDTH)[None, :], other=0.0)


@triton.jit
def store_tile(base, rows, stride, columns, inside, WIDTH: tl.constexpr, x):
    """The counterpart of `load_tile`, in the type of the target."""
    offsets = rows[:, None] * stride + columns[None, :]
    mask = inside[:, None] & (columns < WIDTH)[None, :]
    tl.store(base + offsets, x.to(base.dtype.element_ty), mask=mask)


@triton.jit
def load_features(
    base, rows, stride, columns, inside, WIDTH: tl.constexpr, MAP: tl.constexpr, TY: tl.constexpr
):
    """φ of a tile, in TY; 0 outside, where φ(0) need not be."""
    x = feature_map(load_tile(base, rows, stride, columns, inside, WIDTH).to(tl.float32), MAP)
    if MAP == "elu_plus_one":
        x = tl.where(inside[:, None] & (columns < WIDTH)[None, :], x, 0.0)
    return x.to(TY)


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


@triton.jit
def pair_weights(
    cos_rows, sin_rows, ids_rows, cos_columns, sin_columns, ids_columns, C: tl.constexpr,
    TRIANGLE: tl.constexpr,
):  # fmt: skip
    """Weight (C, C) of each pair of a chunk beside φ·φ: distance, order, document; fp32.

    Args:
        cos_rows, …, ids_columns: (C,) of the tokens along rows and columns; None = none.
        TRIANGLE: "lower" keeps rows ≥ columns, "upper" rows ≤ columns, "" all.
    """
    weight = tl.full((C, C), 1.0, tl.float32)
    if cos_rows is not None:
        # cos(a − b) = cos a cos b + sin a sin b.
        weight = cos_rows[:, None] * cos_columns[None, :] + sin_rows[:, None] * sin_columns[None, :]
    at = tl.arange(0, C)
    if TRIANGLE == "lower":
        weight = tl.where(at[:, None] >= at[None, :], weight, 0.0)
    if TRIANGLE == "upper":
        weight = tl.where(at[:, None] <= at[None, :], weight, 0.0)
    if ids_rows is not None:
        weight = tl.where(ids_rows[:, None] == ids_columns[None, :], weight, 0.0)
    return weight


@triton.jit
def features_through_state(
    x, stride, rows, inside, cos, sin, state, columns, D: tl.constexpr, DV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, MAP: tl.constexpr, TY: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """φ(x)·S of a chunk for BV columns (C, BV), and φ(x)·z (C,), 0 without normaliser; fp32."""
    F: tl.constexpr = D if cos is None else 2 * D
    out = tl.zeros((C, BV), tl.float32)
    out_sin = tl.zeros((C, BV), tl.float32)
    low = tl.zeros((C,), tl.float32)
    low_sin = tl.zeros((C,), tl.float32)
    for start in range(0, D, BK):
        features = start + tl.arange(0, BK)
        X = load_features(x, rows, stride, features, inside, D, MAP, TY)
        S = load_state(state, features, columns, D, DV, False)
        if NORM:
            z = tl.load(state + F * DV + features, mask=features < D, other=0.0)
            reads = tl.sum(X.to(tl.float32) * z[None, :], 1)
            low += reads
            if tl.bfloat16 == TY:
                mean = mean_of_state(S, z, 0)
                S -= z[:, None] * mean[None, :]
                out += reads[:, None] * mean[None, :]
        out = tl.dot(X, S.to(TY), out, input_precision="ieee")
        if cos is not None:
            S = load_state(state + D * DV, features, columns, D, DV, False)
            if NORM:
                z = tl.load(state + F * DV + D + features, mask=features < D, other=0.0)
                reads = tl.sum(X.to(tl.float32) * z[None, :], 1)
                low_sin += reads
                if tl.bfloat16 == TY:
                    mean = mean_of_state(S, z, 0)
                    S -= z[:, None] * mean[None, :]
                    out_sin += reads[:, None] * mean[None, :]
            out_sin = tl.dot(X, S.to(TY), out_sin, input_precision="ieee")
    if cos is not None:
        # The rows are scaled here and not as operands: that would cost registers and rounding.
        out = out * cos[:, None] + out_sin * sin[:, None]
        low = low * cos + low_sin * sin
    return out, low


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
def values_through_state(
    y, stride, rows, inside, scale, low, cos, sin, state, features, D: tl.constexpr,
    DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, TY: tl.constexpr,
    NORM: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """scale·(y·Sᵀ + low·zᵀ) of a chunk for BK features (C, BK); fp32.

    Args:
        scale, low: (C,) fp32; `low` counts with a normaliser only.
        QUERIES: the state is one of keys and values, y a gradient; else the other way round.
    """
    F: tl.constexpr = D if cos is None else 2 * D
    out = _values_through_half(
        y, stride, rows, inside, low, state, state + F * DV, features, D, DV, C, BK, BV, TY, NORM,
        QUERIES,
    )  # fmt: skip
    if cos is not None:
        half = _values_through_half(
            y, stride, rows, inside, low, state + D * DV, state + F * DV + D, features, D, DV, C,
            BK, BV, TY, NORM, QUERIES,
        )  # fmt: skip
        out = out * cos[:, None] + half * sin[:, None]
    return out * scale[:, None]


@triton.jit
def _values_through_half(
    y, stride, rows, inside, low, state, sums, features, D: tl.constexpr, DV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr,
    QUERIES: tl.constexpr,
):  # fmt: skip
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
            if QUERIES:
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
    if CENTRE and not QUERIES:
        out += tl.where(inside, 1.0, 0.0)[:, None] * lift[None, :]
    return out
