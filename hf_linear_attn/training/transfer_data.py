"""Batches of plain text for an attention transfer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.blocks import pack_dataset
from hf_linear_attn.training.data import read_files
from hf_linear_attn.training.packing import Layout
from hf_linear_attn.training.tokenizer import edge_tokens
from hf_linear_attn.training.tokenizing import (
    count_tokens,
    list_features,
    step_fingerprint,
    tokenize_split,
)

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class TransferData:
    """Text as a model reads it.

    Attributes:
        train: batches {"input_ids", "attention_mask": int64 (batch, block)}, in another order each
            time they are read; no padding.
        evaluation: batches of blocks that are not among them.
        description: how much text there is, one line.
    """

    train: DataLoader
    evaluation: list[dict[str, Tensor]]
    description: str


def transfer_data(
    files: list[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    block_size: int,
    batch_size: int = 8,
    evaluation_blocks: int = 8,
    seed: int = 0,
    text_column: str = "text",
) -> TransferData:
    """Read text, put its documents in a row and cut the row into blocks.

    Args:
        files: .txt (blank lines end a document), .jsonl, .json, .parquet, .csv or .tsv with a
            column of text; a relative name is also sought under HF_LINEAR_ATTN_DATA.
        tokenizer: the model's, a fast one; its end token goes between documents and its start
            token before each block, where it has them.
        block_size: tokens of a block, start token included.
        batch_size: blocks of a batch.
        evaluation_blocks: blocks that are held out, at most a tenth of all and at least one.
        seed: of the choice of those blocks and of the order.
        text_column: of the files that have columns.

    Raises:
        ValueError: no such file, no text, fewer than two blocks, a size below its least, or a
            tokenizer that does not know where words begin.
    """
    for name, size in (("batch_size", batch_size), ("evaluation_blocks", evaluation_blocks)):
        if size < 1:
            raise ValueError(f"{name}: got {size}, expected 1 or more")
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ValueError(f"got a {type(tokenizer).__name__}; expected a fast tokenizer")
    args = DataArguments(train_file=files, block_size=block_size, text_column=text_column)
    blocks = _blocks(tokenizer, args)
    held = max(1, min(evaluation_blocks, len(blocks) // 10))
    split = blocks.train_test_split(test_size=held, seed=seed)
    loader = {"batch_size": batch_size, "collate_fn": _stack}
    order = torch.Generator().manual_seed(seed)
    train = DataLoader(cast(Any, split["train"]), shuffle=True, generator=order, **loader)
    return TransferData(
        train,
        list(DataLoader(cast(Any, split["test"]), **loader)),
        f"{len(blocks):,} blocks of {block_size:,} tokens, {held:,} of them held out",
    )


def _blocks(tokenizer: PreTrainedTokenizerFast, args: DataArguments) -> "Dataset":
    from datasets import Dataset

    documents = cast("Dataset", read_files(args.train_file or [], args))
    tokenized = tokenize_split("transfer", documents, tokenizer, by_line=False, num_proc=None)
    layout = Layout(args.block_size, *edge_tokens(tokenizer))
    tokens = count_tokens(tokenized) + (layout.end is not None) * (len(tokenized) - 1)
    if tokens < 2 * (layout.block_size - (layout.start is not None)):
        raise ValueError(
            f"{', '.join(args.train_file or [])}: {tokens:,} tokens do not fill two blocks of "
            f"{layout.block_size:,}, one to learn from and one held out; give more text, or a "
            "smaller block size"
        )
    packed = Dataset.from_generator(
        pack_dataset,
        features=list_features("input_ids", "special_tokens_mask", "word_ids"),
        gen_kwargs={"documents": tokenized, "layout": layout, "remainder": "drop"},
        fingerprint=step_fingerprint(tokenized, layout, "transfer", module=__name__),
    )
    return cast("Dataset", packed).select_columns("input_ids")


def _stack(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    ids = torch.tensor([row["input_ids"] for row in rows])
    # No padding; said, since Transformers would otherwise guess by the padding token.
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
