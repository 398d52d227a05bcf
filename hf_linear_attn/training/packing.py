"""Token sequences cut into examples: packed into blocks, or one after the other in pieces."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Batch = dict[str, list[Any]]


class Layout(NamedTuple):
    """What an example looks like.

    Args:
        block_size: tokens of a full example, special tokens included.
        start: token before every example; None for none.
        end: token after every piece, and between two documents of a block; None for none.
        pad: token that fills the last block when the remainder is padded.
    """

    block_size: int
    start: int | None
    end: int | None
    pad: int | None = None


def pack(batches: Iterable[Batch], layout: Layout, remainder: str) -> Iterator[dict[str, Any]]:
    """Put all documents in a row, `layout.end` between two, and cut the row into blocks.

    Args:
        batches: columns `input_ids` and `word_ids`, a list of ints a document each. How documents
            are batched changes nothing.
        layout: every block begins with `layout.start`, which counts towards its size.
        remainder: `drop`, `pad` or `keep` the tokens that do not fill the last block.

    Yields:
        input_ids, special_tokens_mask (1 on start, end and pad) and word_ids (-1 on those; from 0
        in each block, every word with its own); with `pad` also attention_mask.
    """
    capacity = layout.block_size - (layout.start is not None)
    ids: list[int] = []
    words: list[int] = []
    next_word, first = 0, True
    for document_ids, document_words in _documents(batches):
        if layout.end is not None and not first:
            ids.append(layout.end)
            words.append(-1)
        first = False
        ids += document_ids
        words += [word + next_word for word in document_words]
        next_word = words[-1] + 1
        full = len(ids) // capacity * capacity
        for at in range(0, full, capacity):
            block = ids[at : at + capacity], words[at : at + capacity]
            yield _pad(_example(*block, layout.start, None), layout, remainder)
        del ids[:full], words[:full]
    if ids and remainder != "drop":
        yield _pad(_example(ids, words, layout.start, None), layout, remainder)


def split_long(batch: Batch, layout: Layout) -> Batch:
    """Cut each document into examples of at most `layout.block_size` tokens; nothing is dropped.

    Args:
        batch: columns `input_ids` and `word_ids`, a list of ints a document each.
        layout: every example is start, a piece of one document, end.

    Returns:
        Columns input_ids, special_tokens_mask and word_ids, as `pack` gives them.
    """
    edges = (layout.start is not None) + (layout.end is not None)
    capacity = layout.block_size - edges
    examples = [
        _example(ids[at : at + capacity], words[at : at + capacity], layout.start, layout.end)
        for ids, words in _documents([batch])
        for at in range(0, len(ids), capacity)
    ]
    names = ("input_ids", "special_tokens_mask", "word_ids")
    return {name: [example[name] for example in examples] for name in names}


def _documents(batches: Iterable[Batch]) -> Iterator[tuple[list[int], list[int]]]:
    """The documents that have a token."""
    for batch in batches:
        for ids, words in zip(batch["input_ids"], batch["word_ids"], strict=True):
            if ids:
                yield ids, words


def _example(
    ids: list[int], words: list[int], start: int | None, end: int | None
) -> dict[str, Any]:
    before = [] if start is None else [start]
    after = [] if end is None else [end]
    first_word = min((word for word in words if word >= 0), default=0)
    return {
        "input_ids": [*before, *ids, *after],
        "special_tokens_mask": [
            *[1] * len(before),
            *[int(word < 0) for word in words],
            *[1] * len(after),
        ],
        "word_ids": [
            *[-1] * len(before),
            *[word - first_word if word >= 0 else -1 for word in words],
            *[-1] * len(after),
        ],
    }


def _pad(example: dict[str, Any], layout: Layout, remainder: str) -> dict[str, Any]:
    """With `remainder="pad"`: fill up to the block size and say where the padding is."""
    if remainder != "pad":
        return example
    real = len(example["input_ids"])
    missing = layout.block_size - real
    return {
        "input_ids": example["input_ids"] + [layout.pad] * missing,
        "special_tokens_mask": example["special_tokens_mask"] + [1] * missing,
        "word_ids": example["word_ids"] + [-1] * missing,
        "attention_mask": [1] * real + [0] * missing,
    }
