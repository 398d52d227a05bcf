"""What the gradient of the output is multiplied by, row by row: the derivative of N/max(D, eps)."""

import triton
import triton.language as tl

from hf_linear_attn.kernels.own_rows import own_chunk
from hf_linear_attn.kernels.tiles import load_tile


@triton.jit
def grad_rows(
    grad, out, rest, total, scale, low, grad_b, grad_h, grad_n, N, H, eps, DV: tl.constexpr,
    C: tl.constexpr, BV: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """∂L/∂N = scale·∂L/∂o and ∂L/∂D = scale·low, of C rows; grid (chunks · B·H,).

    Args:
        grad: ∂L/∂o (B, H, N, Dv), with strides, 1 along the last.
        out, rest: (B, H, N, Dv) contiguous, their sum is o; rest None = nothing was rounded.
        total: D, fp32 (B, H, N).
        scale, low: fp32 (B, H, N), written; low, and all before it, with NORM only.
        DROP: rows without gradient are dead, whatever stands in them.
    """
    _, first, own, rows, inside, bh = own_chunk(N, C)
    b = bh // H
    grad += b * grad_b + (bh - b * H) * grad_h + first * grad_n
    place = (bh * N + first) * DV
    dots = tl.zeros((C,), tl.float32)
    there = tl.zeros((C,), tl.int32)
    for start in range(0, DV, BV):
        columns = start + tl.arange(0, BV)
        g = load_tile(grad, own, grad_n, columns, inside, DV).to(tl.float32)
        if DROP:
            there += tl.sum((g != 0).to(tl.int32), 1)
        if NORM:
            o = load_tile(out + place, own, DV, columns, inside, DV).to(tl.float32)
            if rest is not None:
                o += load_tile(rest + place, own, DV, columns, inside, DV).to(tl.float32)
            dots += tl.sum(g * o, 1)
    factor = tl.full((C,), 1.0, tl.float32)
    if NORM:
        d = tl.load(total + bh * N + rows, mask=inside, other=1.0)
        factor = tl.where(d <= 0, 0.0, 1.0 / tl.where(d < eps, eps, d))
        # Where D is clamped it is a constant.
        down = tl.where(d < eps, 0.0, -dots)
        if DROP:
            down = tl.where(there > 0, down, 0.0)
        tl.store(low + bh * N + rows, down, mask=inside)
    if DROP:
        factor = tl.where(there > 0, factor, 0.0)
    tl.store(scale + bh * N + rows, factor, mask=inside)
