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
        apart: documents that share a block do not see each other: each piece of one has a start
            token and a number of its own (column `seq_idx`).
        open_pieces: only the last piece of a long document ends with `end`: a model that predicts
            the next token would else learn to stop where a block is full.
    """

    block_size: int
    start: int | None
    end: int | None
    pad: int | None = None
    apart: bool = False
    open_pieces: bool = False


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


def pack_apart(
    batches: Iterable[Batch], layout: Layout, remainder: str
) -> Iterator[dict[str, Any]]:
    """Fill blocks with documents that do not see each other.

    A document is its tokens and `layout.end`. What does not fit goes on in the next block, as a
    piece of its own behind another start token.

    Args:
        batches: as for `pack`.
        layout: has a start and an end token.
        remainder: `drop`, `pad` or `keep` the tokens that do not fill the last block.

    Yields:
        input_ids and seq_idx (the number of the piece in its block, from 0); with `pad` also
        attention_mask.
    """
    ids: list[int] = []
    pieces: list[int] = []
    for document, _ in _documents(batches):
        rest = [*document, layout.end]
        while rest:
            # Where one token is left, the start stands alone; the piece begins in the next block.
            taken = layout.block_size - len(ids) - 1
            piece = pieces[-1] + 1 if pieces else 0
            ids += [layout.start, *rest[:taken]]
            pieces += [piece] * (len(ids) - len(pieces))
            rest = rest[taken:]
            if len(ids) == layout.block_size:
                yield _fill_apart(ids, pieces, layout, remainder)
                ids, pieces = [], []
    if ids and remainder != "drop":
        yield _fill_apart(ids, pieces, layout, remainder)


def _fill_apart(
    ids: list[int], pieces: list[int], layout: Layout, remainder: str
) -> dict[str, Any]:
    example: dict[str, Any] = {"input_ids": ids, "seq_idx": pieces}
    if remainder != "pad":
        return example
    missing = layout.block_size - len(ids)
    return {
        "input_ids": ids + [layout.pad] * missing,
        "seq_idx": pieces + [pieces[-1]] * missing,
        "attention_mask": [1] * len(ids) + [0] * missing,
    }


def sliding_windows(ids: list[int], capacity: int, stride: int) -> Iterator[tuple[list[int], int]]:
    """Windows over a text in which every token is scored once, with as much before it as fits.

    Args:
        ids: the tokens of the text.
        capacity: tokens of a window.
        stride: by how many tokens a window lies behind the one before it, at most `capacity`.

    Yields:
        The tokens of a window and how many of its last ones are scored: all of the first window,
        of the others those that no window has scored. The last window may be shorter.
    """
    scored = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + capacity, len(ids))
        yield ids[begin:end], end - scored
        scored = end
        if end == len(ids):
            return


def split_long(batch: Batch, layout: Layout) -> Batch:
    """Cut each document into examples of at most `layout.block_size` tokens; nothing is dropped.

    Args:
        batch: columns `input_ids` and `word_ids`, a list of ints a document each.
        layout: every example is start, a piece of one document, end; with `open_pieces` only the
            last piece has an end.

    Returns:
        Columns input_ids, special_tokens_mask and word_ids, as `pack` gives them.
    """
    edges = (layout.start is not None) + (layout.end is not None)
    capacity = layout.block_size - edges
    examples = []
    for ids, words in _documents([batch]):
        for at in range(0, len(ids), capacity):
            goes_on = layout.open_pieces and at + capacity < len(ids)
            piece = ids[at : at + capacity], words[at : at + capacity]
            examples.append(_example(*piece, layout.start, None if goes_on else layout.end))
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
