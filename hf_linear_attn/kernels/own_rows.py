"""What a program works on: its chunk, which rows of that count, and what goes with the rows."""

# Triton has no types for what a kernel is called with and computes.
# pyright: reportCallIssue=false, reportArgumentType=false
# pyright: reportOperatorIssue=false, reportAssignmentType=false

import triton
import triton.language as tl


@triton.jit
def own_chunk(N, C: tl.constexpr):
    """What a program of grid (chunks · others, …) works on.

    Returns:
        its chunk; the first row of that, int64; the rows (C,) counted from there, and from the
        sequence's first; which of them there are; the program's number among the others, int64.
    """
    chunks = tl.cdiv(N, C)
    t = tl.program_id(0) % chunks
    own = tl.arange(0, C)
    rows = t * C + own
    other = (tl.program_id(0) // chunks).to(tl.int64)
    return t, (t * C).to(tl.int64), own, rows, rows < N, other


@triton.jit
def own_heads(bh, G, R):
    """Batch, head and key head of one of B·G·R query heads, and its number among B·G key heads."""
    bg = bh // R
    b = bg // G
    return b, bh - b * (G * R), bg - b * G, bg


@triton.jit
def own_state(
    t, bg, N, heads, cos, C: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, NORM: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    """Offset of the state of a program's chunk and batch × group; one for all without INNER.

    Args:
        heads: programs a chunk to a group.
        cos: None = no angles.
    """
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos is None else 2 * D
    at = bg * (F * E)
    if INNER:
        groups = (tl.num_programs(0) // tl.cdiv(N, C) // heads).to(tl.int64)
        at = (t * groups + bg) * (F * E)
    return at


@triton.jit
def load_rows(x, at, rows, inside):
    """A number (C,) for each of the rows, 0 outside; None where x is."""
    numbers = None
    if x is not None:
        numbers = tl.load(x + at + rows, mask=inside, other=0)
    return numbers


@triton.jit
def real_keys(mask, at, rows, inside):
    """Which rows are keys that are real tokens."""
    real = inside
    if mask is not None:
        real = inside & (tl.load(mask + at + rows, mask=inside, other=0) != 0)
    return real


@triton.jit
def live_rows(scale, low, at, rows, inside, C: tl.constexpr, NORM: tl.constexpr):
    """Which rows of a gradient count, their `scale` and their `low` (C,); see `grad_rows`."""
    alive = inside
    factor = tl.full((C,), 1.0, tl.float32)
    if scale is not None:
        factor = tl.load(scale + at + rows, mask=inside, other=0.0)
        alive = inside & (factor != 0)
    down = tl.zeros((C,), tl.float32)
    if NORM:
        down = tl.load(low + at + rows, mask=alive, other=0.0)
    return alive, factor, down


@triton.jit
def of_document(there, ids, documents, border):
    """Which rows are of the document of the state at a border of chunks."""
    if ids is not None:
        there = there & (ids == tl.load(documents + border))
    return there
