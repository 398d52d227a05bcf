"""Suite `decode`: one more token after many, against SDPA over a static cache of keys and values.

All are the attention core alone. SDPA reads keys and values that are in the cache already; ours
maps the features, takes the token into its state, and attends from it, in two ways: `decode/…` is
`RecurrentDecoder`, which changes its state in place, `decode_op/…` is `linear_attention` with a
state in and a state out, as models call it.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
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
IN_PLACE, AS_MODELS = "decode", "decode_op"
WAYS = {
    IN_PLACE: "RecurrentDecoder, in place",
    AS_MODELS: "linear_attention, as models call it",
}


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
    softmax = f"{IN_PLACE}/softmax"
    calls = {softmax: _softmax_step(cache.q, cache.k, cache.v)}
    sizes = bench.results.sizes
    sizes[f"decode/softmax/{length}"] = _bytes(cache.k) + _bytes(cache.v)
    for name in FEATURE_MAPS:
        text = Text(name, bench.settings, length)
        sizes[f"decode/{name}/{length}"] = _bytes(text.state)
        calls[f"{IN_PLACE}/{name}"] = text.in_place()
        calls[f"{AS_MODELS}/{name}"] = text.as_models()
    with torch.no_grad():
        timings = bench.race(calls)
    bench.record_times(timings, f"{{name}}/{length}")
    for way, words in WAYS.items():
        for name in FEATURE_MAPS:
            bench.results.paired(
                f"{way}/{name}/{length}", timings.ratio(softmax, f"{way}/{name}"),
                f"softmax (SDPA, static cache) / {name} ({words}), one token after {length:,}",
            )  # fmt: skip


def _flat(bench: Bench, *, short: int, long: int) -> None:
    if short == long:
        why = "it compares two lengths, and there is one"
        bench.results.left_out |= {f"decode/flat/{name}": why for name in FEATURE_MAPS}
        return
    calls = {
        f"{name}/{length}": Text(name, bench.settings, length).in_place()
        for name in FEATURE_MAPS
        for length in (short, long)
    }
    with torch.no_grad():
        timings = bench.race(calls)
    for name in FEATURE_MAPS:
        bench.results.paired(
            f"decode/flat/{name}", timings.ratio(f"{name}/{long}", f"{name}/{short}"),
            f"time of one token after {long:,} / after {short:,}, {name} ({WAYS[IN_PLACE]})",
            less=True,
        )  # fmt: skip


def _softmax_step(q: Tensor, k: Tensor, v: Tensor) -> Callable[[], object]:
    query, keys, values = q[:, :, -1:].detach().contiguous(), k.detach(), v.detach()

    def step() -> Tensor:
        return scaled_dot_product_attention(query, keys, values)

    return step


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


class Text:
    """A text of `length` tokens that a mechanism has read.

    What it gives are functions of no argument: each call reads another token, always of the same
    query, key and value, and returns its output (batch, heads, 1, head_dim).
    """

    def __init__(self, name: str, settings: Settings, length: int):
        seen, new = draw(settings, length), draw(settings, 1)
        self.feature_map = FEATURE_MAPS[name]
        self.q, self.k, self.v = (x.detach() for x in new.leaves)
        self.length = length
        # Far enough for every step that is timed.
        self.horizon = 2 * length if name == "cosformer" else None
        angles: dict[str, Any] = {}
        if self.horizon is not None:
            a = horizon_angles(length, self.horizon, settings.device)
            angles = {"q_angles": a, "k_angles": a}
        with torch.no_grad():
            _, state = linear_attention(
                *seen.leaves, causal=True, feature_map=self.feature_map, **angles
            )
        assert state is not None
        self.state = state

    def in_place(self) -> Callable[[], Tensor]:
        """By a decoder that changes a state of its own."""
        decoder = RecurrentDecoder(
            self.state, self.q.shape[1], feature_map=self.feature_map,
            turned=self.horizon is not None,
        )  # fmt: skip
        angles = self._angles()

        def step() -> Tensor:
            return decoder(self.q, self.k, self.v, next(angles))

        return step

    def as_models(self) -> Callable[[], Tensor]:
        """By the op, which returns a state for the next call."""
        state, angles = self.state, self._angles()

        def step() -> Tensor:
            nonlocal state
            a = next(angles)
            out, state = linear_attention(
                self.q, self.k, self.v, causal=True, feature_map=self.feature_map, state=state,
                q_angles=a, k_angles=a,
            )  # fmt: skip
            return out

        return step

    def _angles(self) -> Iterator[Tensor | None]:
        """Those of the positions behind the text, again and again up to the horizon."""
        if self.horizon is None:
            yield from itertools.repeat(None)
            return
        for position in itertools.cycle(range(self.length, self.horizon)):
            angle = position * math.pi / 2 / self.horizon
            # An angle in 16 bits would be that of another position.
            yield torch.full((1, 1), angle, dtype=torch.float32, device=self.q.device)
