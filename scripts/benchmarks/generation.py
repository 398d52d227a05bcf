"""A long text from a decoder without positions: what it remembers must not grow."""

import resource
import sys
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from benchmarks.bench import Bench, Case, Settings
from hf_linear_attn import LinearTransformerConfig

SHORT = 1000


def generation(settings: Settings) -> Case:
    """`generate` with the state as its cache, to the length the settings ask for."""
    tokens = settings.tokens
    return Case(f"generation of {tokens:,} tokens", partial(_generate, tokens=tokens))


def _generate(bench: Bench, *, tokens: int) -> None:
    model, short = _model(bench.settings, tokens), min(SHORT, tokens)
    bench.on_round(0)
    before = _state_bytes(model, short)
    resident = _resident_bytes()
    after = _state_bytes(model, tokens)
    bench.results.sizes[f"decode/state_after/{short}"] = before
    bench.results.sizes[f"decode/state_after/{tokens}"] = after
    # Of the whole process: token ids and the mask, 16 bytes a token, are in it.
    bench.results.sizes[f"decode/resident_growth/{tokens}"] = _resident_bytes() - resident
    bench.results.number(
        f"decode/state_growth/{tokens}", after / before,
        f"cache of a Linear Transformer without positions after {tokens:,} tokens / after "
        f"{short:,}", less=True,
    )  # fmt: skip


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


def _state_bytes(model: Any, tokens: int) -> int:
    """Bytes in the cache after a text of that length."""
    prompt = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    wanted = GenerationConfig(
        max_length=tokens, min_length=tokens, do_sample=False, return_dict_in_generate=True,
        bos_token_id=0, eos_token_id=2, pad_token_id=1,
    )  # fmt: skip
    made = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=wanted)
    assert made.sequences.shape[1] == tokens
    return sum(
        x.numel() * x.element_size()
        for layer in made.cache.layers
        for x in vars(layer).values()
        if isinstance(x, torch.Tensor)
    )


def _resident_bytes() -> int:
    """The most memory the process has had so far."""
    # Linux counts in kibibytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
