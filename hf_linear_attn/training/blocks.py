"""Examples from documents: tokenized, then packed into blocks or one (or more) a document or line.

The cutting itself is in `packing`; here it is carried through `datasets`.
"""

import inspect
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training import packing
from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.packing import Batch, Layout, pack, split_long

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, Features, IterableDataset, IterableDatasetDict

READ_BATCH = 1_000  # documents held in memory at once while packing


def build_examples(
    documents: "DatasetDict | IterableDatasetDict",
    tokenizer: PreTrainedTokenizerFast,
    args: DataArguments,
) -> "DatasetDict":
    """Tokenize documents and cut them into examples.

    Special tokens that are written out in the text are text, so that no document can bring a mask
    or a separator of its own. Examples of special tokens alone (a line of characters the tokenizer
    does not know) hold nothing to learn; they are left out, and counted.

    Args:
        documents: as `load_documents` gives them.
        tokenizer: fast, with a token for the start and one for the end of a text.
        args: format, block size, remainder rule, limits and number of processes.

    Returns:
        `train` and `validation`, a row an example: input_ids (int32), special_tokens_mask (int8),
        word_ids (int32; the words of an example are numbered from 0, special tokens are -1), and
        attention_mask (int8) where the remainder is padded. With streaming, `train` is an
        `IterableDataset`; `validation` is read at once.

    Raises:
        ValueError: a split without a token, or, with `remainder="drop"`, one that does not fill a
            single block; the message says how many tokens there were.
    """
    from datasets import DatasetDict

    layout = _layout(tokenizer, args.block_size)
    limits = {"train": args.max_train_examples, "validation": args.max_eval_examples}
    examples = {}
    for name, limit in limits.items():
        split = documents[name]
        if args.streaming and name == "train":
            stream = _stream(cast("IterableDataset", split), tokenizer, args, layout)
            examples[name] = stream.take(limit) if limit else stream
            continue
        whole = _read_at_once(split) if args.streaming else cast("Dataset", split)
        built = _build(name, whole, tokenizer, args, layout)
        examples[name] = _first(_only_with_words(name, built, tokenizer), limit)
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
        texts = [line for text in texts for line in text.splitlines() if line.strip()]
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


def pack_dataset(
    documents: "Dataset | IterableDataset", layout: Layout, remainder: str
) -> Iterator[dict[str, Any]]:
    """`pack` over the whole of a tokenized data set, read batch by batch."""
    yield from pack(cast(Any, documents.iter(batch_size=READ_BATCH)), layout, remainder)


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
        new_fingerprint=_fingerprint(examples, special),
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


def _layout(tokenizer: PreTrainedTokenizerFast, block_size: int) -> Layout:
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    start = tokenizer.bos_token_id if start is None else start
    end = tokenizer.eos_token_id if end is None else end
    if start is None or end is None or tokenizer.pad_token_id is None:
        raise ValueError(
            "the tokenizer lacks a token for the start (<s>), the end (</s>) or the padding of a "
            "text; choose one of a masked language model"
        )
    return Layout(block_size, cast(int, start), cast(int, end), cast(int, tokenizer.pad_token_id))


def _features(*names: str) -> "Features":
    from datasets import Features, List, Value

    # A token id needs 32 bits, a mask 8.
    kinds = {name: "int8" if name.endswith("mask") else "int32" for name in names}
    return Features({name: List(Value(kind)) for name, kind in kinds.items()})


def _example_features(args: DataArguments) -> "Features":
    padded = ["attention_mask"] if args.data_format == "blocks" and args.remainder == "pad" else []
    return _features("input_ids", "special_tokens_mask", "word_ids", *padded)


def _build(
    name: str,
    documents: "Dataset",
    tokenizer: PreTrainedTokenizerFast,
    args: DataArguments,
    layout: Layout,
) -> "Dataset":
    by_line = args.data_format == "lines"
    tokenized = documents.map(
        tokenize,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer, "by_line": by_line},
        remove_columns=documents.column_names,
        features=_features("input_ids", "word_ids"),
        num_proc=args.preprocessing_num_workers,
        new_fingerprint=_fingerprint(documents, tokenizer.backend_tokenizer.to_str(), by_line),
        desc=f"Tokenizing ({name})",
    )
    tokens = _count_tokens(tokenized)
    if not tokens:
        raise ValueError(f"{name}: the text has no token")
    if args.data_format == "blocks":
        return _pack_whole(name, tokenized, tokens, args, layout)
    examples = tokenized.map(
        split_long,
        batched=True,
        fn_kwargs={"layout": layout},
        remove_columns=tokenized.column_names,
        features=_example_features(args),
        num_proc=args.preprocessing_num_workers,
        new_fingerprint=_fingerprint(tokenized, layout),
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

    in_a_row = tokens + len(tokenized) - 1  # with one separator between two documents
    capacity = layout.block_size - 1
    blocks, left = divmod(in_a_row, capacity)
    if not blocks and args.remainder == "drop":
        raise ValueError(
            f"{name}: {in_a_row:,} tokens do not fill one block of {layout.block_size}; use a "
            "smaller --block_size, --remainder pad or keep, or more text"
        )
    examples = Dataset.from_generator(
        pack_dataset,
        features=_example_features(args),
        gen_kwargs={"documents": tokenized, "layout": layout, "remainder": args.remainder},
        split=NamedSplit(name),
        fingerprint=_fingerprint(tokenized, layout, args.remainder, name),
    )
    rest = {"drop": "dropped", "pad": "in one padded block", "keep": "in one shorter block"}
    examples.info.description = (
        f"{len(tokenized):,} documents with {in_a_row:,} tokens, separators included, became "
        f"{blocks:,} full blocks of {layout.block_size}, start token included; {left:,} tokens "
        f"{rest[args.remainder]}"
    )
    return cast("Dataset", examples)


def _stream(
    documents: "IterableDataset",
    tokenizer: PreTrainedTokenizerFast,
    args: DataArguments,
    layout: Layout,
) -> "IterableDataset":
    from datasets import IterableDataset

    tokenized = documents.map(
        tokenize,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer, "by_line": args.data_format == "lines"},
        remove_columns=["text"],
        features=_features("input_ids", "word_ids"),
    )
    if args.data_format == "blocks":
        examples = IterableDataset.from_generator(
            pack_dataset,
            features=_example_features(args),
            gen_kwargs={"documents": tokenized, "layout": layout, "remainder": args.remainder},
        )
    else:
        examples = tokenized.map(
            split_long,
            batched=True,
            fn_kwargs={"layout": layout},
            remove_columns=["input_ids", "word_ids"],
            features=_example_features(args),
        )
    examples = examples.filter(
        has_word, batched=True, fn_kwargs={"special": sorted(tokenizer.all_special_ids)}
    )
    if next(iter(examples), None) is None:
        raise ValueError("train: the stream does not give a single example")
    return examples


def _read_at_once(stream: Any) -> "Dataset":
    from datasets import Dataset

    return Dataset.from_dict({"text": [row["text"] for row in stream]})


def _count_tokens(tokenized: "Dataset") -> int:
    tables = cast(Any, tokenized.with_format("arrow").iter(batch_size=READ_BATCH))
    return sum(len(table["input_ids"].combine_chunks().flatten()) for table in tables)


def _fingerprint(dataset: "Dataset", *parts: Any) -> str:
    """The cache key of what is made from a data set: it also follows the code of this step.

    `datasets` hashes an importable function by its name, so that a cache would outlive a change.
    """
    from datasets.fingerprint import Hasher

    code = [inspect.getsource(sys.modules[name]) for name in (__name__, packing.__name__)]
    return Hasher.hash([dataset._fingerprint, code, *parts])
