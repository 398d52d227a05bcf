"""From rows to examples: tokenised texts with targets, cut by a stated rule, cuts counted."""

import inspect
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from datasets import Dataset

Batch = dict[str, list[Any]]


@dataclass(frozen=True)
class Tokenization:
    """How texts become tokens.

    Attributes:
        tokenizer: fast.
        max_length: in tokens, special tokens included. A longer text loses its end; of a pair the
            longer text loses its end first.
        token_types: tell the texts of a pair apart by type, for models that have types.
        processes: that tokenize; None is this one.
    """

    tokenizer: PreTrainedTokenizerFast
    max_length: int
    token_types: bool = False
    processes: int | None = None


def build_examples(
    rows: "Dataset", labels: np.ndarray | None, how: Tokenization, name: str
) -> "tuple[Dataset, int]":
    """Tokenize rows.

    Special tokens that are written out in a text are text.

    Args:
        rows: text, and text_pair of a pair.
        labels: (rows,) targets; None leaves the column out.
        how: see `Tokenization`.
        name: of the split, for the progress bar.

    Returns:
        input_ids, attention_mask, token_type_ids where asked for and labels; and how many rows
        were too long.
    """
    from datasets.fingerprint import Hasher

    given = {"max_length": how.max_length, "token_types": how.token_types}
    examples = rows.map(
        tokenize,
        batched=True,
        remove_columns=rows.column_names,
        fn_kwargs={"tokenizer": how.tokenizer, **given},
        num_proc=how.processes,
        new_fingerprint=_key(rows, how),
        desc=f"Tokenizing ({name})",
    )
    _forget_last_call(how.tokenizer)
    cut = int(np.sum(examples["was_cut"]))
    examples = examples.remove_columns("was_cut")
    if labels is not None:
        # Without a key of its own the whole column would be hashed to find one.
        mark = Hasher.hash([examples._fingerprint, labels.tobytes()])
        examples = examples.add_column("labels", list(labels), new_fingerprint=mark)
    return examples, cut


def tokenize(
    batch: Batch, tokenizer: PreTrainedTokenizerFast, max_length: int, token_types: bool
) -> Batch:
    """Tokenize texts or pairs with special tokens, cut to a length.

    Args:
        batch: columns text and, of pairs, text_pair.
        tokenizer: fast.
        max_length: in tokens.
        token_types: add token_type_ids.

    Returns:
        Columns input_ids, attention_mask, was_cut and, if asked for, token_type_ids.
    """
    encoded = tokenizer(
        batch["text"],
        batch.get("text_pair"),
        truncation="longest_first",
        max_length=max_length,
        split_special_tokens=True,
        return_token_type_ids=token_types,
        verbose=False,
    )
    return {
        **{name: list(values) for name, values in encoded.items()},
        "was_cut": [bool(encoding.overflowing) for encoding in encoded.encodings or ()],
    }


def _key(rows: "Dataset", how: Tokenization) -> str:
    """What the cache of `datasets` knows the examples by: rows, rule and tokenizer."""
    from datasets.fingerprint import Hasher

    _forget_last_call(how.tokenizer)
    code = inspect.getsource(sys.modules[__name__])
    settings = [how.max_length, how.token_types, how.tokenizer.backend_tokenizer.to_str()]
    return Hasher.hash([rows._fingerprint, code, *settings])


def _forget_last_call(tokenizer: PreTrainedTokenizerFast) -> None:
    """How a tokenizer cuts and pads is state of its last call, with which it would be saved."""
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
