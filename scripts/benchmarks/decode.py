"""Suite `decode`: one more token after many, against SDPA over a static cache of keys and values.

Both are the attention core alone. SDPA reads keys and values that are in the cache already; ours
maps the features, takes the token into its state in place, and attends from it.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.bench import Bench, Case, Settings
from benchmarks.cores import draw, horizon_angles
from benchmarks.generation import generation
from hf_linear_attn.ops.linear_attention import linear_attention
from hf_linear_attn.ops.recurrent_decoder import RecurrentDecoder

LENGTHS = (1024, 4096, 16_384)
FEATURE_MAPS = {"linear_transformer": "elu_plus_one", "cosformer": "relu"}


def cases(settings: Settings) -> list[Case]:
    """A case a length, the growth between the first and the last, and a long generation."""
    lengths = settings.lengths_or(LENGTHS)
    flat = partial(_flat, short=lengths[0], long=lengths[-1])
    return [*steps(lengths), Case("one token after few and many", flat), generation(settings)]


def steps(lengths: Sequence[int]) -> list[Case]:
    """A case a length."""
    return [Case(f"one token after {n:,}", partial(_step, length=n)) for n in lengths]


def _step(bench: Bench, *, length: int) -> None:
    cache = draw(bench.settings, length)
    calls = {"softmax": _softmax_step(cache.q, cache.k, cache.v)}
    sizes = bench.results.sizes
    sizes[f"decode/softmax/{length}"] = _bytes(cache.k) + _bytes(cache.v)
    for name in FEATURE_MAPS:
        decoder = _Decoder(name, bench.settings, length)
        calls[name] = decoder.step
        sizes[f"decode/{name}/{length}"] = _bytes(decoder.decoder.state)
    with torch.no_grad():
        timings = bench.race(calls)
    bench.record_times(timings, f"decode/{{name}}/{length}")
    for name in FEATURE_MAPS:
        bench.results.paired(
            f"decode/{name}/{length}", timings.ratio("softmax", name),
            f"softmax (SDPA, static cache) / {name}, one token after {length:,}",
        )  # fmt: skip


def _flat(bench: Bench, *, short: int, long: int) -> None:
    calls = {
        f"{name}/{length}": _Decoder(name, bench.settings, length).step
        for name in FEATURE_MAPS
        for length in (short, long)
    }
    with torch.no_grad():
        timings = bench.race(calls)
    for name in FEATURE_MAPS:
        bench.results.paired(
            f"decode/flat/{name}", timings.ratio(f"{name}/{long}", f"{name}/{short}"),
            f"time of one token after {long:,} / after {short:,}, {name}", less=True,
        )  # fmt: skip


def _softmax_step(q: Tensor, k: Tensor, v: Tensor) -> Callable[[], object]:
    query, keys, values = q[:, :, -1:].detach().contiguous(), k.detach(), v.detach()

    def step() -> Tensor:
        return scaled_dot_product_attention(query, keys, values)

    return step


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


class _Decoder:
    """A mechanism that has read `length` tokens, and reads another one at every step."""

    def __init__(self, name: str, settings: Settings, length: int):
        seen, new = draw(settings, length), draw(settings, 1)
        feature_map = FEATURE_MAPS[name]
        self.q, self.k, self.v = (x.detach() for x in new.leaves)
        # Far enough for every step that is timed.
        self.horizon = 2 * length if name == "cosformer" else None
        self.length, self.position = length, length
        angles: dict[str, Any] = {}
        if self.horizon is not None:
            a = horizon_angles(length, self.horizon, settings.device)
            angles = {"q_angles": a, "k_angles": a}
        with torch.no_grad():
            _, state = linear_attention(
                *seen.leaves, causal=True, feature_map=feature_map, **angles
            )
        assert state is not None
        self.decoder = RecurrentDecoder(
            state, self.q.shape[1], feature_map=feature_map, turned=self.horizon is not None
        )

    def step(self) -> Tensor:
        """The output for the next token."""
        if self.horizon is None:
            return self.decoder(self.q, self.k, self.v)
        angle = self.position * math.pi / 2 / self.horizon
        self.position = self.length + (self.position + 1) % self.length
        # An angle in 16 bits would be that of another position.
        a = torch.full((1, 1), angle, dtype=torch.float32, device=self.q.device)
        return self.decoder(self.q, self.k, self.v, a)
