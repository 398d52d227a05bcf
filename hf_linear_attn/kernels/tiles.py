"""What the kernels share: loads, feature maps, products of two tiles, the weights of pairs.

Letters as in `hf_linear_attn.ops.operands`, and C rows of a chunk, BK features and BV value columns
of a tile. Matrix products take operands of type TY and add up in fp32; where TY is fp32 they are
IEEE products, never TF32. A tensor may hold more than 2³¹ elements: bases are moved to the first
row of a chunk by int64 offsets, offsets from there on are int32, which saves registers.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false, reportOptionalSubscript=false

import triton
import triton.language as tl

from hf_linear_attn.kernels.own_rows import load_rows


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
    x = load_tile(base, rows, stride, columns, inside, WIDTH)
    if MAP != "identity":
        x = feature_map(x.to(tl.float32), MAP)
    if MAP == "elu_plus_one":
        x = tl.where(inside[:, None] & (columns < WIDTH)[None, :], x, 0.0)
    return x.to(TY)


@triton.jit
def products(
    x, x_n, x_rows, y, y_n, y_rows, own, WIDTH: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr,
):  # fmt: skip
    """φ(x)·φ(y)ᵀ (C, C) of a chunk, fp32, summed over WIDTH columns, STEP at a time.

    Args:
        x_rows, y_rows: which rows count.
    """
    out = tl.zeros((C, C), tl.float32)
    for start in range(0, WIDTH, STEP):
        columns = start + tl.arange(0, STEP)
        X = load_features(x, own, x_n, columns, x_rows, WIDTH, MAP, TY)
        Y = load_features(y, own, y_n, columns, y_rows, WIDTH, MAP, TY)
        out = tl.dot(X, tl.trans(Y), out, input_precision="ieee")
    return out


@triton.jit
def pair_weights(
    cos_rows, sin_rows, cos, sin, angle_at, ids, rows, inside, C: tl.constexpr,
    TRIANGLE: tl.constexpr,
):  # fmt: skip
    """Weight (C, C) of each pair of a chunk beside φ·φ: distance, order, document; fp32.

    Args:
        cos_rows, sin_rows: (C,) of the tokens along the rows; None = no angles.
        cos, sin, angle_at: as in `load_rows`, of the tokens along the columns.
        ids: documents (C,) or None.
        TRIANGLE: "lower" keeps rows ≥ columns, "upper" rows ≤ columns, "" all.
    """
    weight = tl.full((C, C), 1.0, tl.float32)
    if cos_rows is not None:
        # cos(a − b) = cos a cos b + sin a sin b.
        c = load_rows(cos, angle_at, rows, inside)
        s = load_rows(sin, angle_at, rows, inside)
        weight = cos_rows[:, None] * c[None, :] + sin_rows[:, None] * s[None, :]
    at = tl.arange(0, C)
    if TRIANGLE == "lower":
        weight = tl.where(at[:, None] >= at[None, :], weight, 0.0)
    if TRIANGLE == "upper":
        weight = tl.where(at[:, None] <= at[None, :], weight, 0.0)
    if ids is not None:
        weight = tl.where(ids[:, None] == ids[None, :], weight, 0.0)
    return weight
