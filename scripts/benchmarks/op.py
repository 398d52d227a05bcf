"""Suite `op`: the attention core, forward and backward, against PyTorch's softmax attention."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from benchmarks.bench import Bench, Case, Settings
from benchmarks.cores import (
    BIDIRECTIONAL,
    CAUSAL,
    Inputs,
    cosformer,
    draw,
    forward_backward,
    softmax,
)
from benchmarks.machine import GEMM, gemm_call, gemm_flops
from benchmarks.rounds import Timings

CAUSAL_LENGTHS = (512, 1024, 2048, 4096, 8192)
# Softmax over all pairs of 8,192 tokens takes longer than all the rest together.
BIDIRECTIONAL_LENGTHS = CAUSAL_LENGTHS[:-1]
BASE_LENGTH = 4096
FEW, MANY = 2, 256
# Compared with each other, whatever the dtype of the run.
WIDTHS = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Causal cosFormer of 12 heads of 64 over 4,096 tokens, forward and backward, in chunks of 64: what
# has to be multiplied, whatever the code does.
FLOPS = 7.7e9
FLOPS_SIZE = 12 * 4096 * 64**2


def cases(settings: Settings) -> list[Case]:
    """A case a length and kind, and one for the variants of causal cosFormer."""
    longest = BASE_LENGTH if settings.lengths is None else settings.lengths[-1]
    return [
        *against_softmax(settings.lengths_or(CAUSAL_LENGTHS), causal=True),
        *against_softmax(settings.lengths_or(BIDIRECTIONAL_LENGTHS), causal=False),
        Case("variants of causal cosFormer", partial(_variants, length=longest)),
    ]


def against_softmax(lengths: Sequence[int], *, causal: bool) -> list[Case]:
    """A case a length, in tokens."""
    kind = "causal" if causal else "bidirectional"
    return [
        Case(f"{kind} attention, {n:,} tokens", partial(_against_softmax, length=n, causal=causal))
        for n in lengths
    ]


def _against_softmax(bench: Bench, *, length: int, causal: bool) -> None:
    kind, cores = ("causal", CAUSAL) if causal else ("bidirectional", BIDIRECTIONAL)
    inputs = draw(bench.settings, length)
    calls = {
        name: forward_backward(core, inputs, causal=causal)
        for name, core in {"softmax": softmax, **cores}.items()
    }
    timings = bench.race(calls)
    bench.record_times(timings, f"op/{kind}/{{name}}/{length}")
    for name in cores:
        bench.results.paired(
            f"op/{kind}/{name}/{length}", timings.ratio("softmax", name),
            f"{kind} softmax (SDPA) / {name}, {length:,} tokens, forward + backward",
        )  # fmt: skip


def _variants(bench: Bench, *, length: int) -> None:
    """Growth with the length, 16-bit inputs, padding, packing, and the share of the gemm peak."""
    settings = bench.settings
    inputs = draw(settings, length)
    # The last eighth of the tokens is padding.
    mask = torch.arange(length, device=settings.device)[None] < length - length // 8
    mask = mask.expand(settings.batch, -1).contiguous()
    step = partial(forward_backward, cosformer, causal=True)
    timings = bench.race({
        "cosformer": step(inputs),
        "cosformer-twice-as-long": step(draw(settings, 2 * length)),
        "cosformer-masked": step(inputs, key_mask=mask),
        "cosformer-few-documents": step(inputs, segments=documents(length, FEW, settings)),
        "cosformer-many-documents": step(inputs, segments=documents(length, MANY, settings)),
        **{
            in_dtype(name, settings): step(inputs.to(dtype))
            for name, dtype in WIDTHS.items()
            if dtype != settings.dtype
        },
        GEMM: gemm_call(settings.device, settings.dtype),
    })  # fmt: skip
    bench.record_times(timings, f"op/variants/{{name}}/{length}")
    _put_variants(bench, timings, inputs, length)


def in_dtype(name: str, settings: Settings) -> str:
    """The contender whose inputs are "fp32" or "bf16"; that of the run's own dtype is there."""
    return "cosformer" if WIDTHS[name] == settings.dtype else f"cosformer-{name}"


def documents(length: int, count: int, settings: Settings) -> Tensor:
    """The document of each token, int64 (batch, length), where a row packs so many alike."""
    ids = torch.arange(length, device=settings.device) * count // length
    return ids.expand(settings.batch, -1).contiguous()


def _put_variants(bench: Bench, timings: Timings, inputs: Inputs, length: int) -> None:
    put, n = bench.results.paired, f"causal cosformer, {length:,} tokens"
    put(
        "op/growth/cosformer", timings.ratio("cosformer-twice-as-long", "cosformer"),
        f"time of {2 * length:,} tokens / of {length:,}, causal cosformer", less=True,
    )  # fmt: skip
    _put_dtypes(bench, timings, n)
    put(
        "op/mask_over_none/cosformer", timings.ratio("cosformer-masked", "cosformer"),
        f"time with an eighth of padding / without a mask, {n}", less=True,
    )  # fmt: skip
    put(
        "op/many_documents_over_few/cosformer",
        timings.ratio("cosformer-many-documents", "cosformer-few-documents"),
        f"time of {MANY} packed documents / of {FEW}, {n}", less=True,
    )  # fmt: skip
    B, H, _, D = inputs.q.shape
    work = FLOPS * (B * H * length * D**2) / FLOPS_SIZE
    share = work / gemm_flops(bench.settings.device)
    put(
        f"op/gemm_share/cosformer/{length}", timings.ratio(GEMM, "cosformer").scaled(share),
        f"{work / 1e9:.3g} GFLOP in the time of {n}, / the rate of a matrix product",
    )  # fmt: skip


def _put_dtypes(bench: Bench, timings: Timings, what: str) -> None:
    settings = bench.settings
    bf16, fp32 = (in_dtype(name, settings) for name in ("bf16", "fp32"))
    converted = [name for name, dtype in WIDTHS.items() if dtype != settings.dtype]
    own = str(settings.dtype).removeprefix("torch.")
    bench.results.paired(
        "op/bf16_over_fp32/cosformer", timings.ratio(bf16, fp32),
        f"time of bf16 inputs / of fp32 inputs, {what}; the {' and '.join(converted)} ones are "
        f"converted from the run's {own} ones", less=True,
    )  # fmt: skip
