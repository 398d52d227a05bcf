"""Suite `model`: a masked-LM training step, cosFormer against stock RoBERTa with SDPA."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

from benchmarks.bench import Bench, Case, Settings
from benchmarks.layers import own_config, placed, roberta_config

LENGTHS = (512, 4096)
VOCABULARY = 50_265
MASKED = 0.15


def cases(settings: Settings) -> list[Case]:
    """A case a length."""
    return [
        Case(f"training step, {n:,} tokens", partial(_step, length=n))
        for n in settings.lengths_or(LENGTHS)
    ]


def _step(bench: Bench, *, length: int) -> None:
    settings = bench.settings
    stock = AutoModelForMaskedLM.from_config(
        roberta_config(settings, length, settings.layers, vocab_size=VOCABULARY),
        attn_implementation="sdpa",
    )
    own = AutoModelForMaskedLM.from_config(
        own_config("cosformer", settings, length, settings.layers, vocab_size=VOCABULARY)
    )
    batch = _batch(settings, length)
    timings = bench.race({
        "roberta-mlm": training_step(placed(stock, settings), *batch),
        "cosformer-mlm": training_step(placed(own, settings), *batch),
    })  # fmt: skip
    bench.record_times(timings, f"model/{{name}}/{length}")
    bench.results.paired(
        f"model/cosformer-mlm/{length}", timings.ratio("roberta-mlm", "cosformer-mlm"),
        f"stock RoBERTa (SDPA) / cosFormer, {settings.layers} layers, masked-LM step with the "
        f"whole output layer and AdamW, {length:,} tokens",
    )  # fmt: skip


def _batch(settings: Settings, length: int) -> tuple[Tensor, Tensor]:
    """Random token ids, none of them special, and labels where some are to be predicted."""
    generator = torch.Generator().manual_seed(settings.seed)
    size = (settings.batch, length)
    ids = torch.randint(10, VOCABULARY, size, generator=generator)
    chosen = torch.rand(size, generator=generator) < MASKED
    # A loss needs a target, however short the text.
    chosen[:, 0] = True
    labels = torch.where(chosen, ids, -100)
    return ids.to(settings.device), labels.to(settings.device)


def training_step(model: nn.Module, ids: Tensor, labels: Tensor) -> Callable[[], object]:
    """A step of AdamW on a batch, as a call.

    Args:
        model: with a language-model head, in training mode if dropout is to act.
        ids: int64, (batch, length).
        labels: int64, (batch, length); -100 where nothing is to be predicted.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        model(input_ids=ids, labels=labels).loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    return step
