"""The states of the splits of a sequence, put together."""

import triton
import triton.language as tl


@triton.jit
def split_scan(
    sums, initial, carried, final, G, SPLITS, SPAN, CHUNKS, SIZE: tl.constexpr,
    BV: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Each split's own sum is replaced by the state it begins with; grid (B·G, tiles of SIZE).

    Args:
        sums: fp32 (splits, B·G, SIZE), changed in place.
        initial: fp32 (B·G, SIZE) before the first split (REVERSE: behind the last), or None = 0.
        carried: int64 (B, CHUNKS + 1), the document of the state at each border of chunks, or None.
        final: fp32 (B·G, SIZE), the state behind the last split.
        SPAN: chunks a split.
    """
    bg = tl.program_id(0).to(tl.int64)
    groups = tl.num_programs(0).to(tl.int64)
    at = tl.program_id(1) * BV + tl.arange(0, BV)
    inside = at < SIZE
    state = tl.zeros((BV,), tl.float32)
    if initial is not None:
        state += tl.load(initial + bg * SIZE + at, mask=inside, other=0.0)
    for i in range(0, SPLITS):
        s = i
        if REVERSE:
            s = SPLITS - 1 - i
        here = sums + (s * groups + bg) * SIZE + at
        own = tl.load(here, mask=inside, other=0.0)
        tl.store(here, state, mask=inside)
        if carried is not None:
            # Documents are contiguous: equal at both ends, equal throughout.
            row = carried + bg // G * (CHUNKS + 1)
            before = tl.load(row + s * SPAN)
            behind = tl.load(row + tl.minimum(s * SPAN + SPAN, CHUNKS))
            state = tl.where(before == behind, state, 0.0)
        state += own
    tl.store(final + bg * SIZE + at, state, mask=inside)
