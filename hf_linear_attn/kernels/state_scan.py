"""States before each chunk, and behind the last one: running sums of φ(x)ᵀy over a split."""

import triton
import triton.language as tl

from hf_linear_attn.kernels.own_rows import live_rows, load_rows, real_keys
from hf_linear_attn.kernels.tiles import load_features, load_tile, store_tile


@triton.jit
def state_scan(
    x, y, cos, sin, mask, scale, low, segments, carried, initial, states, final,
    x_b, x_h, x_n, y_b, y_h, y_n, angle_b, N, G, SPLITS, SPAN, R,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    MAP: tl.constexpr, TY: tl.constexpr, NORM: tl.constexpr, QUERIES: tl.constexpr,
    REVERSE: tl.constexpr,
):  # fmt: skip
    """Grid (splits · B·G, tiles of D · tiles of Dv); a split is SPAN chunks.

    Keys and values forwards, for the forward pass; queries and gradients of the output backwards,
    for the backward pass; each the other way for the suffix sums of packed documents.

    Args:
        x: (B, R·G, N, D), mapped by φ; strides x_b, x_h, x_n, and 1 along D.
        y: (B, R·G, N, Dv), likewise.
        cos, sin: fp32 (B or 1, N), angle_b from row to row; None = no angles.
        mask: uint8 (B, N), keys that are real tokens; None = all.
        scale: fp32 (B, R·G, N), a factor of φ(x), 0 = the row is dead; None = 1.
        low: fp32 (B, R·G, N), stands for y in the sums z of queries; for keys that is 1.
        segments: int64 (B, N); carried: int64 (B, chunks + 1), the document of the state at each
            border of chunks; None = one document.
        initial: fp32 (splits, B·G, F, E) or None = 0.
        states: fp32 (chunks, B·G, F·E), as `through_states` says; None = not wanted.
        final: fp32 (splits, B·G, F, E), behind each split; None = not wanted.
        SPLITS, SPAN, R: number of splits, chunks a split, heads of x to a head of the state.
    """
    E: tl.constexpr = DV + 1 if NORM else DV
    F: tl.constexpr = D if cos is None else 2 * D
    split = tl.program_id(0) % SPLITS
    bg = (tl.program_id(0) // SPLITS).to(tl.int64)
    groups = (tl.num_programs(0) // SPLITS).to(tl.int64)
    b = bg // G
    head = (bg - b * G) * R
    first_of_d = tl.program_id(1) % tl.cdiv(D, BK)
    first_of_v = tl.program_id(1) // tl.cdiv(D, BK)
    features = first_of_d * BK + tl.arange(0, BK)
    columns = first_of_v * BV + tl.arange(0, BV)
    chunks = tl.cdiv(N, C)
    begin = split * SPAN
    count = tl.minimum(SPAN, chunks - begin)

    S = tl.zeros((BK, BV), tl.float32)
    z = tl.zeros((BK,), tl.float32)
    S_sin = tl.zeros((BK, BV), tl.float32)
    z_sin = tl.zeros((BK,), tl.float32)
    at = (split * groups + bg) * (F * E)
    if initial is not None:
        everywhere = features < D
        S += load_tile(initial + at, features, E, columns, everywhere, DV)
        if NORM:
            z += tl.load(initial + at + features * E + DV, mask=everywhere, other=0.0)
        if cos is not None:
            S_sin += load_tile(initial + at + D * E, features, E, columns, everywhere, DV)
            if NORM:
                z_sin += tl.load(initial + at + (D + features) * E + DV, mask=everywhere, other=0.0)

    own = tl.arange(0, C)
    # One loop over chunks and heads: nested ones cost registers.
    for step in range(0, count * R):
        i = step // R
        j = step - i * R
        t = begin + i
        if REVERSE:
            t = begin + count - 1 - i
        if states is not None:
            if j == 0:
                here = states + (t * groups + bg) * (F * E)
                store_tile(here, features, DV, columns, features < D, DV, S)
                if cos is not None:
                    store_tile(here + D * DV, features, DV, columns, features < D, DV, S_sin)
                if NORM:
                    if first_of_v == 0:
                        tl.store(here + F * DV + features, z, mask=features < D)
                        if cos is not None:
                            tl.store(here + F * DV + D + features, z_sin, mask=features < D)
        rows = t * C + own
        inside = rows < N
        first = (t * C).to(tl.int64)
        wanted = inside
        if carried is not None:
            border = carried + b * (chunks + 1) + t
            before = tl.load(border)
            behind = tl.load(border + 1)
            outgoing = behind
            if REVERSE:
                outgoing = before
            wanted = inside & (load_rows(segments, b * N, rows, inside) == outgoing)
            # A carried state of another document ends here; a select, lest 0 · inf be NaN.
            same = (before == behind) | (j > 0)
            S = tl.where(same, S, 0.0)
            z = tl.where(same, z, 0.0)
            S_sin = tl.where(same, S_sin, 0.0)
            z_sin = tl.where(same, z_sin, 0.0)
        wanted = real_keys(mask, b * N, rows, wanted)
        h = head + j
        wanted, factor, weight = live_rows(
            scale, low, (b * G * R + h) * N, rows, wanted, C, NORM and QUERIES
        )
        if not QUERIES:
            weight = tl.full((C,), 1.0, tl.float32)
        of_x = x + b * x_b + h * x_h + first * x_n
        of_y = y + b * y_b + h * y_h + first * y_n
        X = load_features(of_x, own, x_n, features, wanted, D, MAP, TY)
        Y = load_tile(of_y, own, y_n, columns, wanted, DV).to(TY)
        # Factors go to the features, and the sums z are of the features as they were rounded: so a
        # mean of the values cancels against the normaliser to the last bit.
        if cos is not None:
            c = load_rows(cos, b * angle_b, rows, inside)
            s = load_rows(sin, b * angle_b, rows, inside)
            wide = X.to(tl.float32)
            X = (wide * (factor * c)[:, None]).to(TY)
            X_sin = (wide * (factor * s)[:, None]).to(TY)
            S_sin = tl.dot(tl.trans(X_sin), Y, S_sin, input_precision="ieee")
            if NORM:
                z_sin += tl.sum(X_sin.to(tl.float32) * weight[:, None], 0)
        elif scale is not None:
            X = (X.to(tl.float32) * factor[:, None]).to(TY)
        S = tl.dot(tl.trans(X), Y, S, input_precision="ieee")
        if NORM:
            z += tl.sum(X.to(tl.float32) * weight[:, None], 0)

    if final is not None:
        store_tile(final + at, features, E, columns, features < D, DV, S)
        if cos is not None:
            store_tile(final + at + D * E, features, E, columns, features < D, DV, S_sin)
        if NORM:
            if first_of_v == 0:
                tl.store(final + at + features * E + DV, z, mask=features < D)
                if cos is not None:
                    tl.store(final + at + (D + features) * E + DV, z_sin, mask=features < D)
