"""Examples from documents: tokenized, then packed into blocks or one (or more) a document or line.

The cutting itself is in `packing`; here it is carried through `datasets`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.packing import Batch, Layout, pack, pack_apart, split_long
from hf_linear_attn.training.tokenizer import edge_tokens
from hf_linear_attn.training.tokenizing import (
    READ_BATCH,
    count_tokens,
    list_features,
    read_at_once,
    step_fingerprint,
    tokenize_split,
    tokenize_stream,
)

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict


def build_examples(
    documents: "DatasetDict | IterableDatasetDict",
    tokenizer: PreTrainedTokenizerFast,
    args: DataArguments,
    layout: Layout | None = None,
) -> "DatasetDict":
    """Tokenize documents and cut them into examples.

    Special tokens that are written out in the text are text, so that no document can bring a mask
    or a separator of its own. Examples of special tokens alone (a line of characters the tokenizer
    does not know) have nothing to mask; they are left out, and counted. A causal language model
    learns from line ends and unknown words, too, and keeps them.

    Args:
        documents: as `load_documents` gives them.
        tokenizer: fast, with a token for the start and one for the end of a text.
        args: format, block size, remainder rule, limits and number of processes.
        layout: what an example looks like; None is `masked_lm_layout`.

    Returns:
        `train` and `validation`, a row an example: input_ids (int32), special_tokens_mask (int8),
        word_ids (int32; the words of an example are numbered from 0, special tokens are -1), and
        attention_mask (int8) where the remainder is padded. Blocks of documents that stay apart
        have seq_idx (int32) instead of special_tokens_mask and word_ids. With streaming, `train`
        is an `IterableDataset`; `validation` is read at once.

    Raises:
        ValueError: a split without a token, or, with `remainder="drop"`, one that does not fill a
            single block; the message says how many tokens there were.
    """
    from datasets import DatasetDict

    layout = layout or masked_lm_layout(tokenizer, args.block_size)
    if args.data_format == "text":
        layout = layout._replace(end=None)
    limits = {"train": args.max_train_examples, "validation": args.max_eval_examples}
    examples = {}
    for name, limit in limits.items():
        split = documents[name]
        if args.streaming and name == "train":
            stream = _stream(cast("IterableDataset", split), tokenizer, args, layout)
            examples[name] = stream.take(limit) if limit else stream
            continue
        whole = read_at_once(split) if args.streaming else cast("Dataset", split)
        built = _build(name, whole, tokenizer, args, layout)
        if not layout.open_pieces:
            built = _only_with_words(name, built, tokenizer)
        examples[name] = _first(built, limit)
    return DatasetDict(examples)


def describe(examples: "DatasetDict") -> str:
    """Say, in one line a split, how many tokens became how many examples, and which were dropped.

    Args:
        examples: as `build_examples` gives them.
    """
    return "\n".join(
        f"{name}: {dataset.info.description or 'a stream, read as it is needed'}"
        for name, dataset in examples.items()
    )


def masked_lm_layout(tokenizer: PreTrainedTokenizerFast, block_size: int) -> Layout:
    """Start token, tokens, end token; ValueError where the tokenizer lacks one of them."""
    start, end = edge_tokens(tokenizer)
    if start is None or end is None or tokenizer.pad_token_id is None:
        raise ValueError(
            "the tokenizer lacks a token for the start (<s>), the end (</s>) or the padding of a "
            "text; choose one of a masked language model"
        )
    return Layout(block_size, start, end, cast(int, tokenizer.pad_token_id))


def causal_lm_layout(
    tokenizer: PreTrainedTokenizerFast, block_size: int, *, apart: bool = False
) -> Layout:
    """Start token and tokens, an end token behind a document alone.

    Args:
        tokenizer: loaded for a causal language model; one edge token serves for both edges.
        block_size: tokens of a full example.
        apart: documents of a block do not see each other.
    """
    start, end = edge_tokens(tokenizer)
    start, end = (end if start is None else start), (start if end is None else end)
    pad = cast(int, tokenizer.pad_token_id)
    return Layout(block_size, start, end, pad, apart=apart, open_pieces=True)


def pack_dataset(
    documents: "Dataset | IterableDataset", layout: Layout, remainder: str
) -> Iterator[dict[str, Any]]:
    """Pack the whole of a tokenized data set, read batch by batch."""
    batches = cast(Any, documents.iter(batch_size=READ_BATCH))
    yield from (pack_apart if layout.apart else pack)(batches, layout, remainder)


def has_word(batch: Batch, special: list[int]) -> list[bool]:
    """Which rows hold a token beside special ones.

    Args:
        batch: column `input_ids`.
        special: ids of special tokens.
    """
    return [not set(ids) <= set(special) for ids in batch["input_ids"]]


def _only_with_words(
    name: str, examples: "Dataset", tokenizer: PreTrainedTokenizerFast
) -> "Dataset":
    special = sorted(tokenizer.all_special_ids)
    kept = examples.filter(
        has_word,
        batched=True,
        fn_kwargs={"special": special},
        new_fingerprint=step_fingerprint(examples, special, module=__name__),
        desc=f"Looking for words ({name})",
    )
    if not len(kept):
        raise ValueError(
            f"{name}: all {len(examples):,} examples are special tokens alone: the tokenizer knows "
            "no character of this text; choose another tokenizer"
        )
    left_out = len(examples) - len(kept)
    kept.info.description = examples.info.description
    if left_out:
        kept.info.description += f"; {left_out:,} of special tokens alone are left out"
    return kept


def _first(examples: "Dataset", limit: int | None) -> "Dataset":
    if limit is None or limit >= len(examples):
        return examples
    examples.info.description += f"; the first {limit:,} are used"
    return examples.select(range(limit))


def _example_features(args: DataArguments, layout: Layout) -> "Features":
    padded = (
        ["attention_mask"]
        if args.data_format in ("blocks", "text") and args.remainder == "pad"
        else []
    )
    if layout.apart and args.data_format in ("blocks", "text"):
        return list_features("input_ids", "seq_idx", *padded)
    return list_features("input_ids", "special_tokens_mask", "word_ids", *padded)


def _build(
    name: str,
    documents: "Dataset",
    tokenizer: PreTrainedTokenizerFast,
    args: DataArguments,
    layout: Layout,
) -> "Dataset":
    by_line = args.data_format == "lines"
    num_proc = args.preprocessing_num_workers
    tokenized = tokenize_split(name, documents, tokenizer, by_line=by_line, num_proc=num_proc)
    tokens = count_tokens(tokenized)
    if args.data_format in ("blocks", "text"):
        return _pack_whole(name, tokenized, tokens, args, layout)
    examples = tokenized.map(
        split_long,
        batched=True,
        fn_kwargs={"layout": layout},
        remove_columns=tokenized.column_names,
        features=_example_features(args, layout),
        num_proc=num_proc,
        new_fingerprint=step_fingerprint(tokenized, layout, module=__name__),
        desc=f"Cutting ({name})",
    )
    unit = "lines" if by_line else "documents"
    examples.info.description = (
        f"{len(tokenized):,} {unit} with {tokens:,} tokens became {len(examples):,} examples of at "
        f"most {layout.block_size}, special tokens included; nothing dropped"
    )
    return examples


def _pack_whole(
    name: str, tokenized: "Dataset", tokens: int, args: DataArguments, layout: Layout
) -> "Dataset":
    from datasets import Dataset, NamedSplit

    # One separator between two documents; kept apart, each has an end of its own.
    in_a_row = tokens
    if layout.end is not None:
        in_a_row += len(tokenized) - (not layout.apart)
    starts = len(tokenized) if layout.apart else 1
    if in_a_row + starts < layout.block_size and args.remainder == "drop":
        raise ValueError(
            f"{name}: {in_a_row:,} tokens do not fill one block of {layout.block_size}; use a "
            "smaller --block_size, --remainder pad or keep, or more text"
        )
    examples = Dataset.from_generator(
        pack_dataset,
        features=_example_features(args, layout),
        gen_kwargs={"documents": tokenized, "layout": layout, "remainder": args.remainder},
        split=NamedSplit(name),
        fingerprint=step_fingerprint(tokenized, layout, args.remainder, name, module=__name__),
    )
    packed = cast("Dataset", examples)
    packed.info.description = _packed_description(packed, len(tokenized), in_a_row, args, layout)
    return packed


def _packed_description(
    examples: "Dataset", documents: int, in_a_row: int, args: DataArguments, layout: Layout
) -> str:
    rest = {"drop": "dropped", "pad": "in one padded block", "keep": "in one shorter block"}
    of = f"{documents:,} documents with {in_a_row:,} tokens"
    if layout.end is None:
        blocks, left = divmod(in_a_row, layout.block_size - 1)
        return (
            f"{in_a_row:,} tokens as the text stands became {blocks:,} full blocks of "
            f"{layout.block_size}, start token included; {left:,} tokens {rest[args.remainder]}"
        )
    if layout.apart:
        kept = {
            "drop": "what does not fill the last one is dropped",
            "pad": "the last one padded",
            "keep": "the last one shorter where they do not fill it",
        }
        return (
            f"{of}, end tokens included, became {len(examples):,} blocks of {layout.block_size}, "
            f"in which no document sees another; {kept[args.remainder]}"
        )
    blocks, left = divmod(in_a_row, layout.block_size - 1)
    return (
        f"{of}, separators included, became {blocks:,} full blocks of {layout.block_size}, start "
        f"token included; {left:,} tokens {rest[args.remainder]}"
    )


def _stream(
    documents: "IterableDataset",
    tokenizer: PreTrainedTokenizerFast,
    args: DataArguments,
    layout: Layout,
) -> "IterableDataset":
    from datasets import IterableDataset

    by_line = args.data_format == "lines"
    tokenized = tokenize_stream(documents, tokenizer, by_line=by_line)
    if args.data_format in ("blocks", "text"):
        examples = IterableDataset.from_generator(
            pack_dataset,
            features=_example_features(args, layout),
            gen_kwargs={"documents": tokenized, "layout": layout, "remainder": args.remainder},
        )
    else:
        examples = tokenized.map(
            split_long,
            batched=True,
            fn_kwargs={"layout": layout},
            remove_columns=["input_ids", "word_ids"],
            features=_example_features(args, layout),
        )
    if not layout.open_pieces:
        special = sorted(tokenizer.all_special_ids)
        examples = examples.filter(has_word, batched=True, fn_kwargs={"special": special})
    if next(iter(examples), None) is None:
        raise ValueError("train: the stream does not give a single example")
    return examples
