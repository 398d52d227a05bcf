"""Iterative pseudo-inverses, each matrix in one program from the first step to the last.

    Z ← ¼ Z (13 − AZ (15 − AZ (7 − AZ)))          (Razavi et al. 2014; Nyströmformer, eq. 15)

In PyTorch a step is eight launches that write and read m × m numbers; here Z stays on the chip.
"""

import triton
import triton.language as tl


@triton.jit
def _step(A, Z, eye):
    P = tl.dot(A, Z, input_precision="ieee")
    T = 15 * eye - tl.dot(P, 7 * eye - P, input_precision="ieee")
    T = 13 * eye - tl.dot(P, T, input_precision="ieee")
    return 0.25 * tl.dot(Z, T, input_precision="ieee")


@triton.jit
def newton_schulz(
    a, z, steps, M: tl.constexpr, BM: tl.constexpr, ITERATIONS: tl.constexpr, SAVE: tl.constexpr
):  # fmt: skip
    """Z after ITERATIONS steps; grid (matrices,).

    Args:
        a: fp32 (matrices, M, M) contiguous.
        z: fp32 (matrices, M, M), Z_0; replaced by the result.
        steps: fp32 (ITERATIONS, matrices, M, M), Z before each step, written with SAVE.
        BM: a power of two from M and 16 on; beyond M all are zeros, and stay so.
    """
    at, inside = _cells(M, BM)
    matrix = tl.program_id(0).to(tl.int64) * (M * M)
    A = tl.load(a + matrix + at, mask=inside, other=0.0)
    Z = tl.load(z + matrix + at, mask=inside, other=0.0)
    eye = _eye(BM)
    for i in range(0, ITERATIONS):
        if SAVE:
            whole = tl.num_programs(0).to(tl.int64) * (M * M)
            tl.store(steps + i * whole + matrix + at, Z, mask=inside)
        Z = _step(A, Z, eye)
    tl.store(z + matrix + at, Z, mask=inside)


@triton.jit
def newton_schulz_backward(
    a, steps, grad, grad_a, M: tl.constexpr, BM: tl.constexpr, ITERATIONS: tl.constexpr
):  # fmt: skip
    """∂L/∂A of the steps, and ∂L/∂Z_0; grid (matrices,).

    Args:
        a, steps: as in `newton_schulz`.
        grad: fp32 (matrices, M, M), ∂L/∂Z of the result; replaced by ∂L/∂Z_0.
        grad_a: likewise, written.
    """
    at, inside = _cells(M, BM)
    matrix = tl.program_id(0).to(tl.int64) * (M * M)
    whole = tl.num_programs(0).to(tl.int64) * (M * M)
    A = tl.load(a + matrix + at, mask=inside, other=0.0)
    G = tl.load(grad + matrix + at, mask=inside, other=0.0)
    dA = tl.zeros((BM, BM), tl.float32)
    eye = _eye(BM)
    for i in range(0, ITERATIONS):
        before = steps + (ITERATIONS - 1 - i) * whole + matrix
        Z = tl.load(before + at, mask=inside, other=0.0)
        P = tl.dot(A, Z, input_precision="ieee")
        first = 7 * eye - P
        second = 15 * eye - tl.dot(P, first, input_precision="ieee")
        third = 13 * eye - tl.dot(P, second, input_precision="ieee")
        d_third = 0.25 * tl.dot(tl.trans(Z), G, input_precision="ieee")
        dZ = 0.25 * tl.dot(G, tl.trans(third), input_precision="ieee")
        d_second = -tl.dot(tl.trans(P), d_third, input_precision="ieee")
        d_first = -tl.dot(tl.trans(P), d_second, input_precision="ieee")
        dP = -d_first
        dP -= tl.dot(d_third, tl.trans(second), input_precision="ieee")
        dP -= tl.dot(d_second, tl.trans(first), input_precision="ieee")
        dA += tl.dot(dP, tl.trans(Z), input_precision="ieee")
        G = dZ + tl.dot(tl.trans(A), dP, input_precision="ieee")
    tl.store(grad_a + matrix + at, dA, mask=inside)
    tl.store(grad + matrix + at, G, mask=inside)


@triton.jit
def _cells(M: tl.constexpr, BM: tl.constexpr):
    """Offsets (BM, BM) in a matrix of M rows, and which of them it has."""
    at = tl.arange(0, BM)
    inside = (at < M)[:, None] & (at < M)[None, :]
    return at[:, None] * M + at[None, :], inside


@triton.jit
def _eye(BM: tl.constexpr):
    at = tl.arange(0, BM)
    return tl.where(at[:, None] == at[None, :], 1.0, 0.0)
