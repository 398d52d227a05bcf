"""How many steps a model may take in the time that another takes for its own."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForMaskedLM

from benchmarks.clock import CpuClock
from benchmarks.model import training_step
from benchmarks.rounds import interleave
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.model_setup import build_config
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import parse_arguments

ROUNDS = 7


def step_seconds(
    settings: Mapping[str, Mapping[str, Any]], on_round: Callable[[int], None]
) -> dict[str, float]:
    """CPU seconds of a masked-LM training step by model: medians over interleaved rounds.

    Args:
        settings: recipe arguments of a run, by model.
        on_round: told the number of rounds that are done.
    """
    torch.set_num_threads(1)
    calls = {name: _training_step(each) for name, each in settings.items()}
    timings = interleave(calls, CpuClock(), ROUNDS, on_round)
    return {name: timings.of(name).median for name in calls}


def steps_in_the_same_time(steps: int, seconds: Mapping[str, float]) -> dict[str, int]:
    """Steps by model, so that all take the time of the first, which takes `steps`."""
    first = next(iter(seconds.values()))
    return {name: max(1, round(steps * first / each)) for name, each in seconds.items()}


def _training_step(settings: Mapping[str, Any]) -> Callable[[], object]:
    parser = RecipeParser(tuple(MaskedLMArguments.__annotations__.values()))
    # Where it would be written is asked for by Transformers; nothing is.
    under = {**settings, "output_dir": "unused"}
    args = MaskedLMArguments(*parse_arguments(parser, [], None, under=under))
    model = AutoModelForMaskedLM.from_config(
        build_config(args.model, vocab_size=args.model.vocab_size)
    )
    size = (args.training.per_device_train_batch_size, args.data.block_size)
    return _step_of(model.train(), size, args.model.vocab_size, args.masking.mlm_probability)


def _step_of(
    model: nn.Module, size: tuple[int, int], vocabulary: int, masked: float
) -> Callable[[], object]:
    """A step on random tokens: what they are changes nothing in the time."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, vocabulary, size, generator=generator)
    chosen = torch.rand(size, generator=generator) < masked
    labels = torch.where(chosen, ids, -100)
    return training_step(model, ids, labels)
