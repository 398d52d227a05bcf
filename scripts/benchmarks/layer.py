"""Suite `layer`: a RoBERTa-base layer, forward and backward, against the stock one with SDPA."""

from collections.abc import Sequence
from functools import partial

from benchmarks.bench import Bench, Case, Settings
from benchmarks.layers import forward_backward, hidden_states, own_layer, roberta_layer

LENGTHS = (512, 2048, 4096, 8192)


def cases(settings: Settings) -> list[Case]:
    """A case a length."""
    return steps(settings.lengths_or(LENGTHS))


def steps(lengths: Sequence[int]) -> list[Case]:
    """The same, at given lengths in tokens."""
    return [Case(f"layer, {n:,} tokens", partial(_layer, length=n)) for n in lengths]


def _layer(bench: Bench, *, length: int) -> None:
    settings = bench.settings
    x, grad = hidden_states(settings, length)
    stock = roberta_layer(settings, length)
    own = own_layer("cosformer", settings, length)
    timings = bench.race({
        "roberta": forward_backward(stock, stock, x, grad),
        "cosformer": forward_backward(own, lambda x: own(x, {}), x, grad),
    })  # fmt: skip
    bench.record_times(timings, f"layer/{{name}}/{length}")
    bench.results.paired(
        f"layer/cosformer/{length}", timings.ratio("roberta", "cosformer"),
        f"stock RoBERTa layer (SDPA) / cosFormer layer, {length:,} tokens, forward + backward",
    )  # fmt: skip
