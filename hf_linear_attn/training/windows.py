"""Evaluation by sliding windows: every token is scored once, with much text before it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.collators import IGNORED
from hf_linear_attn.training.packing import Layout, sliding_windows
from hf_linear_attn.training.tokenizing import (
    list_features,
    read_at_once,
    step_fingerprint,
    tokenize_split,
)

if TYPE_CHECKING:
    from datasets import Dataset


def build_windows(
    documents: Any,
    tokenizer: PreTrainedTokenizerFast,
    args: DataArguments,
    layout: Layout,
    stride: int,
) -> "Dataset":
    """Windows over the evaluation text.

    Args:
        documents: a split of `load_documents`.
        tokenizer: fast.
        args: with `data_format` blocks and documents that see each other the text is one row, an
            end token between two documents, with text one row without them; else each document
            (line) has windows of its own.
        layout: of `causal_lm_layout`; a window is the start token and block_size - 1 tokens.
        stride: tokens between two windows.

    Returns:
        input_ids (int32) and labels (int32), -100 where nothing is scored. Nothing is dropped but
        what `max_eval_examples` leaves out.

    Raises:
        ValueError: a text without a token.
    """
    from datasets import Dataset, NamedSplit

    if args.data_format == "text":
        layout = layout._replace(end=None)
    whole = read_at_once(documents) if args.streaming else documents
    by_line = args.data_format == "lines"
    num_proc = args.preprocessing_num_workers
    tokenized = tokenize_split("validation", whole, tokenizer, by_line=by_line, num_proc=num_proc)
    given = {
        "documents": tokenized,
        "layout": layout,
        "stride": stride,
        "together": args.data_format in ("blocks", "text") and not layout.apart,
    }
    windows = Dataset.from_generator(
        window_rows,
        features=list_features("input_ids", "labels"),
        gen_kwargs=given,
        split=NamedSplit("validation"),
        fingerprint=step_fingerprint(tokenized, layout, stride, given["together"], module=__name__),
    )
    built = cast("Dataset", windows)
    texts = f"{len(tokenized):,} documents" if layout.end is not None else "the text as it stands"
    scored = sum(label != IGNORED for row in built["labels"] for label in row)
    built.info.description = (
        f"{texts} became {len(built):,} windows of at most "
        f"{layout.block_size}, {stride:,} tokens apart, that score each of {scored:,} tokens once"
    )
    limit = args.max_eval_examples
    if limit is None or limit >= len(built):
        return built
    built.info.description += f"; the first {limit:,} are used"
    return built.select(range(limit))


def window_rows(
    documents: "Dataset", layout: Layout, stride: int, together: bool
) -> Iterator[dict[str, list[int]]]:
    """The rows of `build_windows`.

    Args:
        documents: column `input_ids`.
        layout: gives the edge tokens and the size.
        stride: tokens between two windows.
        together: all documents are one text.
    """
    start = cast(int, layout.start)
    end = [] if layout.end is None else [layout.end]
    for text in _texts(documents, end, together):
        for window, scored in sliding_windows(text, layout.block_size - 1, stride):
            labels = [IGNORED] * (1 + len(window) - scored) + window[len(window) - scored :]
            yield {"input_ids": [start, *window], "labels": labels}


def _texts(documents: "Dataset", end: list[int], together: bool) -> Iterator[list[int]]:
    rows = (cast(Any, row)["input_ids"] for row in documents)
    if not together:
        yield from ([*ids, *end] for ids in rows)
        return
    text: list[int] = []
    for ids in rows:
        if text:
            text += end  # only between two documents
        text += ids
    yield text
