"""One filled mask, to see what a masked language model has learnt."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TEXTS_LOOKED_AT = 50
_FEWEST_WORDS = 5


@dataclass(frozen=True)
class FilledMask:
    """A sentence with one token masked and what the model puts there.

    Attributes:
        sentence: with the mask token in it.
        truth: the token that was masked.
        guesses: the likeliest tokens and their probabilities, best first.
    """

    sentence: str
    truth: str
    guesses: list[tuple[str, float]]


def fill_one_mask(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    max_length: int,
    guesses: int = 5,
) -> FilledMask:
    """Mask the middle visible token of a sentence and let the model guess it.

    Args:
        model: masked language model; it is put into evaluation mode.
        tokenizer: of the model.
        texts: the first sentence in them that fits is taken, or the beginning of a longer one.
        max_length: in tokens, special tokens included.
        guesses: how many to return.

    Raises:
        ValueError: when the texts hold nothing but white space.
    """
    ids = _sentence_ids(tokenizer, texts, max_length)
    # A token that can be seen: not white space, of which byte-level tokens have much.
    places = [i for i, token in enumerate(ids.tolist()) if _is_visible(tokenizer, token)]
    place = places[len(places) // 2]
    truth = int(ids[place])
    ids[place] = cast(int, tokenizer.mask_token_id)
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids[None].to(model.device)).logits[0, place]
    best = logits.float().softmax(-1).topk(guesses)
    return FilledMask(
        sentence=_without_edges(tokenizer, ids),
        truth=_decode(tokenizer, [truth]),
        guesses=[
            (_decode(tokenizer, [int(token)]), float(p))
            for p, token in zip(best.values, best.indices, strict=True)
        ],
    )


def _sentence_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_length: int
) -> torch.Tensor:
    """Token ids `(seq,)` of the first whole sentence that fits, else of the first one's head."""
    head: list[int] | None = None
    for text in islice(texts, _TEXTS_LOOKED_AT):
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(text.split())):
            if not sentence:
                continue
            ids = tokenizer(sentence, verbose=False)["input_ids"]
            if len(sentence.split()) >= _FEWEST_WORDS and len(ids) <= max_length:
                return torch.tensor(ids)
            head = head or tokenizer(sentence, truncation=True, max_length=max_length)["input_ids"]
    if head is None:
        raise ValueError("the evaluation text holds nothing but white space")
    return torch.tensor(head)


def _without_edges(tokenizer: PreTrainedTokenizerBase, ids: torch.Tensor) -> str:
    """The text with the mask token, without the start, end and padding tokens."""
    hidden = [i for i in tokenizer.all_special_ids if i != tokenizer.mask_token_id]
    return _decode(tokenizer, [i for i in ids.tolist() if i not in hidden])


def _is_visible(tokenizer: PreTrainedTokenizerBase, token: int) -> bool:
    return token not in tokenizer.all_special_ids and not _decode(tokenizer, [token]).isspace()


def _decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return str(tokenizer.decode(ids))
