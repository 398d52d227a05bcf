"""Documents become tokens, without special ones, through `datasets` and its cache."""

import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, cast

from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training import packing
from hf_linear_attn.training.cache_damage import check_layout
from hf_linear_attn.training.packing import Batch

if TYPE_CHECKING:
    from datasets import Dataset, Features, IterableDataset

_LINE_END = re.compile(r"\r\n|\n|\r")  # as files have them; str.splitlines() knows others
READ_BATCH = 1_000  # documents held in memory at once


def tokenize(batch: Batch, tokenizer: PreTrainedTokenizerFast, by_line: bool) -> Batch:
    """Tokenize texts without adding special tokens.

    Args:
        batch: column `text`.
        tokenizer: fast.
        by_line: each non-blank line is a text of its own.

    Returns:
        Columns input_ids and word_ids, a row a text that has a token.
    """
    texts = batch["text"]
    if by_line:
        texts = [line for text in texts for line in _LINE_END.split(text) if line.strip()]
    encoded = tokenizer(
        texts,
        add_special_tokens=False,
        split_special_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # of texts longer than the model: they are cut later
    )
    rows = [(ids, encoded.word_ids(row)) for row, ids in enumerate(encoded["input_ids"]) if ids]
    return {"input_ids": [ids for ids, _ in rows], "word_ids": [words for _, words in rows]}


def tokenize_split(
    name: str,
    documents: "Dataset",
    tokenizer: PreTrainedTokenizerFast,
    *,
    by_line: bool,
    num_proc: int | None,
) -> "Dataset":
    """`tokenize` a split that is in memory or on disk, with a progress bar.

    Raises:
        ValueError: the split has no token.
    """
    tokenized = documents.map(
        tokenize,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer, "by_line": by_line},
        remove_columns=documents.column_names,
        features=list_features("input_ids", "word_ids"),
        num_proc=num_proc,
        new_fingerprint=step_fingerprint(
            documents, tokenizer.backend_tokenizer.to_str(), by_line, module=__name__
        ),
        desc=f"Tokenizing ({name})",
    )
    if not len(tokenized):
        raise ValueError(f"{name}: the text has no token")
    return tokenized


def tokenize_stream(
    documents: "IterableDataset", tokenizer: PreTrainedTokenizerFast, *, by_line: bool
) -> "IterableDataset":
    """`tokenize` documents as they are needed."""
    return documents.map(
        tokenize,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer, "by_line": by_line},
        remove_columns=["text"],
        features=list_features("input_ids", "word_ids"),
    )


def read_at_once(stream: Any) -> "Dataset":
    """A stream of documents as a data set in memory."""
    from datasets import Dataset

    return Dataset.from_dict({"text": [row["text"] for row in stream]})


def count_tokens(tokenized: "Dataset") -> int:
    """The number of tokens in the column `input_ids`.

    Raises:
        ValueError: the cache that they come from is damaged.
    """
    check_layout(tokenized)
    tables = cast(Any, tokenized.with_format("arrow").iter(batch_size=READ_BATCH))
    return sum(len(table["input_ids"].combine_chunks().flatten()) for table in tables)


def list_features(*names: str) -> "Features":
    """Columns of integer lists, as small as their values allow."""
    from datasets import Features, List, Value

    # A token id needs 32 bits, a mask 8.
    kinds = {name: "int8" if name.endswith("mask") else "int32" for name in names}
    return Features({name: List(Value(kind)) for name, kind in kinds.items()})


def step_fingerprint(dataset: "Dataset", *parts: Any, module: str) -> str:
    """The cache key of what a module makes from a data set: it also follows the module's code.

    `datasets` hashes an importable function by its name, so that a cache would outlive a change.
    """
    from datasets.fingerprint import Hasher

    names = (module, __name__, packing.__name__)
    code = [inspect.getsource(sys.modules[name]) for name in names]
    return Hasher.hash([dataset._fingerprint, code, *parts])
