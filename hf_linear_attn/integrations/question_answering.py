"""Answers as parts of a text, for which Transformers 5 has no pipeline any more."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_linear_attn.integrations.evaluation_mode import evaluation_mode


class Answer(NamedTuple):
    """A part of a text.

    Attributes:
        answer: the part itself.
        score: its share among all parts that are short enough, 0 to 1.
        start, end: where it stands: text[start:end].
    """

    answer: str
    score: float
    start: int
    end: int


@torch.no_grad()
def answer_question(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    question: str,
    context: str,
    *,
    max_answer_tokens: int = 30,
) -> Answer:
    """The part of a text that a `…ForQuestionAnswering` model takes for the answer.

    A span's score is the softmax over all spans of the text, of the sum of the logits of its first
    and its last token (Devlin et al. 2018, "BERT", §4.2).

    Args:
        model: of ours or of Transformers, with an adapter of PEFT or without; on its own device.
        tokenizer: the model's, a fast one.
        question: put first.
        context: the text, as long as the model takes; it is never cut.
        max_answer_tokens: of the answer.

    Raises:
        ValueError: a text without a token or too long for the model, a slow tokenizer, or an
            answer of no token.
    """
    if max_answer_tokens < 1:
        raise ValueError(f"max_answer_tokens: got {max_answer_tokens}, expected 1 or more.")
    if not tokenizer.is_fast:
        raise ValueError(
            f"got a {type(tokenizer).__name__}; expected a fast tokenizer, which knows where in "
            "the text a token stands."
        )
    encoded = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0]
    inside = torch.tensor([part == 1 for part in encoded.sequence_ids(0)])
    if not inside.any():
        raise ValueError(f"context: got {context!r}, a text in which there is no token.")
    with evaluation_mode(model):
        output = model(**encoded.to(model.device))
    first, last, score = _best_span(
        output.start_logits[0], output.end_logits[0], inside, max_answer_tokens
    )
    start, end = int(offsets[first][0]), int(offsets[last][1])
    return Answer(context[start:end], score, start, end)


def _best_span(start: Tensor, end: Tensor, inside: Tensor, longest: int) -> tuple[int, int, float]:
    """First and last token and share of the best span of at most `longest` tokens."""
    start, end = (logits.float().cpu().masked_fill(~inside, -torch.inf) for logits in (start, end))
    # Row i: the ends i, i + 1, … of a span that begins at i; never a square of the length.
    ends = torch.nn.functional.pad(end, (0, longest - 1), value=-torch.inf).unfold(0, longest, 1)
    shares = (start[:, None] + ends).flatten().softmax(0)
    best = int(shares.argmax())
    first, further = divmod(best, longest)
    return first, first + further, float(shares[best])
