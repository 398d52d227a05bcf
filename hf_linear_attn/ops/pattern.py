"""Which pairs of a sequence attend to each other, and how the sequence is cut into chunks."""

from dataclasses import dataclass

from torch import Tensor

from hf_linear_attn.ops.documents import Gates, chunk_gates
from hf_linear_attn.ops.operands import Rows

Bounds = tuple[int, int]

# Without an inner part a chunk only bounds the size of temporaries; longer ones are faster.
STREAM_CHUNK = 256


def spans(length: int, chunk: int) -> list[Bounds]:
    """(start, stop) of each chunk; the last one may be short."""
    return [(start, min(start + chunk, length)) for start in range(0, length, chunk)]


@dataclass
class Pattern:
    """Which pairs attend, and how the sequence is cut."""

    query_spans: list[Bounds]
    key_spans: list[Bounds]
    causal: bool
    inner: bool
    """pairs inside a chunk are computed there; otherwise a state holds them"""
    prefix: list[Gates] | None
    """gates of the prefix scan; None = one document"""
    suffix: list[Gates] | None
    """gates of the suffix scan; None = no such scan"""
    segments: Tensor | None

    @classmethod
    def build(
        cls, queries: Rows, keys: Rows, segments: Tensor | None, mask: Tensor | None, *,
        causal: bool, chunk: int,
    ) -> "Pattern":  # fmt: skip
        """The pattern of a call; `segments` int (B, N) or None."""
        inner = causal or segments is not None
        chunk = chunk if inner else STREAM_CHUNK
        query_spans, key_spans = spans(queries.length, chunk), spans(keys.length, chunk)
        prefix = suffix = None
        if segments is not None:
            prefix = chunk_gates(segments, mask, key_spans, keys.dtype, reverse=False)
            if not causal:
                suffix = chunk_gates(segments, mask, key_spans, keys.dtype, reverse=True)
        return cls(query_spans, key_spans, causal, inner, prefix, suffix, segments)

    def inner_weight(self, queries: Rows, keys: Rows, start: int, stop: int) -> Tensor | None:
        """Weight of each pair of a chunk beside φ(q)·φ(k): (B or 1, n, n), or None for all ones."""
        weight: Tensor | None = None
        if queries.turn is not None and keys.turn is not None:
            # cos(a − b) = cos a cos b + sin a sin b, so the products stay at width D.
            cq, sq = (turn[:, 0, 0, start:stop] for turn in queries.turn)
            ck, sk = (turn[:, 0, 0, start:stop] for turn in keys.turn)
            weight = cq * ck.mT + sq * sk.mT
        if self.causal:
            n = stop - start
            weight = queries.x.new_ones(1, n, n, dtype=queries.dtype) if weight is None else weight
            weight = weight.tril()
        if self.segments is not None:
            ids = self.segments[:, start:stop]
            same = (ids[:, :, None] == ids[:, None, :]).to(queries.dtype)
            weight = same if weight is None else weight * same
        return weight
