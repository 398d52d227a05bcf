"""Iterative pseudo-inverses, each matrix in one program from the first step to the last.

    Z ← ¼ Z (13 − AZ (15 − AZ (7 − AZ)))          (Razavi et al. 2014; Nyströmformer, eq. 15)

In PyTorch a step is eight launches. fp32 products of whole matrices in registers spill them: here a
product is made tile by tile, from and to work space that does not leave the caches.
"""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl


@triton.jit
def newton_schulz(
    a, zs, work, M: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, ITERATIONS: tl.constexpr,
    SAVE: tl.constexpr,
):  # fmt: skip
    """Z after each of ITERATIONS steps; grid (matrices,).

    Args:
        a: fp32 (matrices, M, M) contiguous.
        zs: fp32 (ITERATIONS + 1, matrices, M, M), Z_0 and, written, what each step makes; without
            SAVE (2, …), written in turns.
        work: fp32 (3, matrices, M, M), overwritten.
        BM, BK: rows and columns of a tile of a product, and what it sums at a time; 16 at least.
    """
    matrix, whole = _place(M)
    a += matrix
    p = work + matrix
    second = p + whole
    third = second + whole
    for i in range(0, ITERATIONS):
        z = zs + (i if SAVE else i % 2) * whole + matrix
        new = zs + (i + 1 if SAVE else (i + 1) % 2) * whole + matrix
        _multiply(p, 0.0, 1.0, a, z, p, 0.0, M, BM, BK, False, False)
        # 15 − P (7 − P)
        _multiply(second, 15.0, 1.0, p, p, p, -7.0, M, BM, BK, False, False)
        _multiply(third, 13.0, -1.0, p, second, p, 0.0, M, BM, BK, False, False)
        _multiply(new, 0.0, 0.25, z, third, p, 0.0, M, BM, BK, False, False)


@triton.jit
def newton_schulz_backward(
    a, zs, grads, grad_a, work, M: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    ITERATIONS: tl.constexpr,
):  # fmt: skip
    """∂L/∂A of the steps, and ∂L/∂Z_0; grid (matrices,).

    Args:
        a, zs, BM, BK: as in `newton_schulz`.
        grads: fp32 (2, matrices, M, M), ∂L/∂Z of the last step and, written in turns, of those
            before.
        grad_a: fp32 (matrices, M, M), zeros; ∂L/∂A is added.
        work: fp32 (6, matrices, M, M), overwritten.
    """
    matrix, whole = _place(M)
    a += matrix
    grad_a += matrix
    p = work + matrix
    second = p + whole
    third = second + whole
    d_third = third + whole
    d_second = d_third + whole
    d_p = d_second + whole
    for i in range(0, ITERATIONS):
        z = zs + (ITERATIONS - 1 - i) * whole + matrix
        grad = grads + i % 2 * whole + matrix
        new = grads + (i + 1) % 2 * whole + matrix
        _multiply(p, 0.0, 1.0, a, z, p, 0.0, M, BM, BK, False, False)
        _multiply(second, 15.0, 1.0, p, p, p, -7.0, M, BM, BK, False, False)
        _multiply(third, 13.0, -1.0, p, second, p, 0.0, M, BM, BK, False, False)
        _multiply(new, 0.0, 0.25, grad, third, p, 0.0, M, BM, BK, False, True)
        _multiply(d_third, 0.0, 0.25, z, grad, p, 0.0, M, BM, BK, True, False)
        _multiply(d_second, 0.0, -1.0, p, d_third, p, 0.0, M, BM, BK, True, False)
        # ∂/∂P of P (7 − P), of P·second and of P·third.
        _multiply(d_p, 0.0, 1.0, p, d_second, d_second, -7.0, M, BM, BK, True, False)
        _multiply(d_p, 0.0, 1.0, d_second, p, d_p, 1.0, M, BM, BK, False, True)
        _multiply(d_p, 0.0, -1.0, d_third, second, d_p, 1.0, M, BM, BK, False, True)
        _multiply(grad_a, 0.0, 1.0, d_p, z, grad_a, 1.0, M, BM, BK, False, True)
        _multiply(new, 0.0, 1.0, a, d_p, new, 1.0, M, BM, BK, True, False)


@triton.jit
def _multiply(
    out, diagonal: tl.constexpr, factor: tl.constexpr, x, y, more, share: tl.constexpr,
    M: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, FLIP_X: tl.constexpr, FLIP_Y: tl.constexpr,
):  # fmt: skip
    """out = diagonal·1 + factor·x·y + share·more, of matrices in memory; transposed where FLIP.

    Args:
        out: not x or y. It may be `more`: what is written waits for what is read there.
        more: not read where `share` is 0.
    """
    for tile in range(0, tl.cdiv(M, BM) * tl.cdiv(M, BM)):
        rows = tile // tl.cdiv(M, BM) * BM + tl.arange(0, BM)
        columns = tile % tl.cdiv(M, BM) * BM + tl.arange(0, BM)
        result = tl.zeros((BM, BM), tl.float32)
        for start in range(0, M, BK):
            inner = start + tl.arange(0, BK)
            X = _load(x, rows, inner, M, FLIP_X)
            Y = _load(y, inner, columns, M, FLIP_Y)
            result = tl.dot(X, Y, result, input_precision="ieee")
        result *= factor
        if diagonal != 0:
            result += tl.where(rows[:, None] == columns[None, :], diagonal, 0.0)
        if share != 0:
            result += share * _load(more, rows, columns, M, False)
        inside = (rows < M)[:, None] & (columns < M)[None, :]
        tl.store(out + rows[:, None] * M + columns[None, :], result, mask=inside)
    # What one thread writes here others read.
    tl.debug_barrier()


@triton.jit
def _load(x, rows, columns, M: tl.constexpr, FLIP: tl.constexpr):
    at = rows[:, None] * M + columns[None, :]
    if FLIP:
        at = columns[None, :] * M + rows[:, None]
    return tl.load(x + at, mask=(rows < M)[:, None] & (columns < M)[None, :], other=0.0)


@triton.jit
def _place(M: tl.constexpr):
    """Offset of a program's matrix among them all, and how many numbers they are; int64."""
    size = M * M
    return tl.program_id(0).to(tl.int64) * size, tl.num_programs(0).to(tl.int64) * size
