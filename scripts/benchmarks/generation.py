"""A long text from a decoder without positions: what it remembers must not grow."""

import gc
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)

from benchmarks.bench import Bench, Case, Settings
from benchmarks.resident import resident_bytes, tensor_bytes
from hf_linear_attn import LinearTransformerConfig

SHORT = 1000


def generation(settings: Settings) -> Case:
    """`generate` with the state as its cache, to the length the settings ask for."""
    tokens = settings.tokens
    return Case(f"generation of {tokens:,} tokens", partial(_generate, tokens=tokens))


def _generate(bench: Bench, *, tokens: int) -> None:
    """Two texts: a short one, which also sets up what is set up once, and a long one."""
    results, short = bench.results, min(SHORT, _tenth(tokens))
    growth, resident = f"decode/state_growth/{tokens}", f"decode/resident_growth/{tokens}"
    if short == tokens:
        why = f"a text of {tokens} tokens has no shorter one beside it; give a longer --tokens"
        results.left_out |= {growth: why, resident: why}
        return
    model = _model(bench.settings, tokens)
    bench.on_round(0)
    before, _ = _generated(model, short)
    after, grown = _generated(model, tokens)
    results.sizes[f"decode/state_after/{short}"] = before
    results.sizes[f"decode/state_after/{tokens}"] = after
    if grown is None:
        results.left_out[resident] = "nothing tells the resident size here; install psutil"
    else:
        # Of the whole process: token ids and the mask, 16 bytes a token, are in it.
        results.sizes[resident] = grown
    results.number(
        growth, after / before,
        f"cache of a Linear Transformer without positions after {tokens:,} tokens / after "
        f"{short:,}", less=True,
    )  # fmt: skip


def _tenth(tokens: int) -> int:
    """A tenth of a text, which has at least the prompt and a token."""
    return max(tokens // 10, 2)


def _model(settings: Settings, tokens: int) -> Any:
    """One small layer: the time goes into the loop around it, not into its products."""
    torch.manual_seed(settings.seed)
    config = LinearTransformerConfig(
        vocab_size=64, hidden_size=64, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=64, position_embedding_type="none", is_decoder=True,
        # No limit without positions, but `generate` warns where it takes it for one.
        max_position_embeddings=tokens,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).to(settings.device).eval()


class _Resident(StoppingCriteria):
    """Stops nothing: reads the resident size when a text has come to a length, in tokens."""

    def __init__(self, length: int):
        self.length = length
        self.bytes: int | None = None

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        if input_ids.shape[1] == self.length:
            # What only waits to be freed is no growth.
            gc.collect()
            self.bytes = resident_bytes()
        return input_ids.new_zeros(input_ids.shape[0], dtype=torch.bool)


def _generated(model: Any, tokens: int) -> tuple[int, int | None]:
    """What a text of that length leaves.

    Returns:
        Bytes in the cache, and by how many bytes the process has grown since a tenth of the text.
    """
    prompt = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    wanted = GenerationConfig(
        max_length=tokens, min_length=tokens, do_sample=False, return_dict_in_generate=True,
        bos_token_id=0, eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    tenth, end = (_Resident(length) for length in (_tenth(tokens), tokens))
    made = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), generation_config=wanted,
        stopping_criteria=StoppingCriteriaList([tenth, end]),
    )  # fmt: skip
    assert made.sequences.shape[1] == tokens
    grown = None if tenth.bytes is None or end.bytes is None else end.bytes - tenth.bytes
    return tensor_bytes(made.cache), grown
