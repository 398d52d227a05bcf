"""Texts that a causal language model goes on with, to see what it has learnt."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Continuation:
    """A text and what the model wrote behind it.

    Attributes:
        prompt: as given.
        written: by the model, up to an end token.
    """

    prompt: str
    written: str


def beginnings(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    count: int = 3,
    words: int = 8,
) -> list[str]:
    """The first words of the first documents that are longer than that.

    Args:
        texts: documents.
        tokenizer: of the model.
        max_length: tokens the model can take; a beginning leaves half of them free. None = no
            limit.
        count: how many beginnings.
        words: of each, or as many as fit.
    """
    long = (text.split() for text in texts if len(text.split()) > words)
    prompts = []
    for text in islice(long, count):
        fitting = words
        while max_length is not None and fitting > 1:
            if _tokens(tokenizer, " ".join(text[:fitting])).shape[1] <= max_length // 2:
                break
            fitting -= 1
        prompts.append(" ".join(text[:fitting]))
    return prompts


def check_prompts(
    prompts: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_length: int | None
) -> None:
    """Raise ValueError for a prompt behind which the model cannot take a single token."""
    for prompt in prompts:
        tokens = _tokens(tokenizer, prompt).shape[1]
        if max_length is not None and tokens >= max_length:
            raise ValueError(
                f"prompts: {prompt[:40]!r} has {tokens} tokens and the model takes {max_length}, "
                "what it writes included; give a shorter text"
            )


def continue_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    max_length: int | None,
    max_new_tokens: int,
    temperature: float,
    seed: int,
) -> list[Continuation]:
    """Let a model go on with texts, one after the other.

    Args:
        model: causal language model; it is put into evaluation mode.
        tokenizer: of the model; it leaves a text open.
        prompts: the texts, see `check_prompts`.
        max_length: tokens the model can take, prompt and continuation together; None = no limit.
        max_new_tokens: longest continuation in tokens, shorter where the model takes no more;
            nothing is written where it is 0.
        temperature: tokens are drawn at it; 0 takes the likeliest.
        seed: of the draws; the random state of torch stays as it was.
    """
    if not max_new_tokens:
        return []
    model.eval()
    drawn = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 0.95}
    continued = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for prompt in prompts:
            ids = _tokens(tokenizer, prompt).to(model.device)
            room = max_new_tokens if max_length is None else max_length - ids.shape[1]
            written = cast(Any, model).generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=min(max_new_tokens, room),
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                **(drawn if temperature else {"do_sample": False}),
            )[0]
            # Together, since a tokenizer may put a blank between two tokens.
            before = str(tokenizer.decode(ids[0], skip_special_tokens=True))
            whole = str(tokenizer.decode(written, skip_special_tokens=True))
            continued.append(Continuation(prompt, whole.removeprefix(before)))
    return continued


def _tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> torch.Tensor:
    """Token ids `(1, seq)`."""
    return cast(torch.Tensor, tokenizer(text, return_tensors="pt", verbose=False)["input_ids"])
