"""Which ids a tokenizer gives: they may have gaps, so their number says nothing of the largest."""

from transformers import PreTrainedTokenizerBase


def id_bound(tokenizer: PreTrainedTokenizerBase) -> int:
    """One more than the largest id of a tokenizer: the smallest vocabulary that holds all ids.

    `len(tokenizer)` counts tokens and is smaller where ids have been left out.
    """
    return max(tokenizer.get_vocab().values(), default=-1) + 1
