"""The suites by name, each with what it is about."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import compare, decode, layer, memory, model, op
from benchmarks.bench import Case, Settings


@dataclass(frozen=True)
class Suite:
    """What one value of --suite measures.

    Attributes:
        about: in words, for --help and the page of results.
        cases: its parts.
        draws: the plot shows it.
    """

    about: str
    cases: Callable[[Settings], list[Case]]
    draws: bool = False


QUICK_LENGTHS = (512, 1024, 2048)


def _quick(settings: Settings) -> list[Case]:
    lengths = settings.lengths_or(QUICK_LENGTHS)
    return [
        *op.against_softmax(lengths, causal=True),
        *op.against_softmax(lengths, causal=False),
        memory.saved(lengths[-1]),
        *memory.peaks(lengths, lengths),
        *layer.steps(lengths[:1]),
        *decode.steps(lengths),
    ]


SUITES = {
    "op": Suite(
        "the attention core, forward + backward, against PyTorch's softmax attention (SDPA) on "
        "the same contiguous tensors, no mask, no dropout: causal, bidirectional, and variants",
        op.cases, draws=True,
    ),
    "layer": Suite(
        "a layer of RoBERTa-base's shape, forward + backward, against the stock layer with SDPA",
        layer.cases,
    ),
    "model": Suite(
        "a masked-LM training step of a cosFormer of RoBERTa-base's shape against stock RoBERTa "
        "with SDPA: no dropout, the whole output layer and AdamW on both sides",
        model.cases,
    ),
    "decode": Suite(
        "one more token through the attention core, its features included, against SDPA over a "
        "static cache: RecurrentDecoder in place (decode/…) and linear_attention as models call it "
        "(decode_op/…); and a long text in constant memory",
        decode.cases,
    ),
    "memory": Suite(
        "what is kept for the backward pass, the peak of forward + backward, and the error "
        "against float64 at 16,384 tokens",
        memory.cases, draws=True,
    ),
    "compare": Suite(
        "other packages: stock Nyströmformer and Longformer, flash-attn, flash-linear-attention "
        "and performer-pytorch where installed, the official cosFormer layer with --official",
        compare.cases,
    ),
    "quick": Suite(
        "a first look within two minutes: op, memory, layer and decode at short lengths",
        _quick, draws=True,
    ),
}  # fmt: skip
ALL = tuple(name for name in SUITES if name != "quick")
