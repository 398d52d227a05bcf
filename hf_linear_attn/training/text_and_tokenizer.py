"""What every language model begins with: documents, and a tokenizer loaded or trained on them."""

from typing import Any

from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.data import load_documents
from hf_linear_attn.training.text_files import find_file
from hf_linear_attn.training.tokenizer import check_vocabulary_size, load_or_train_tokenizer

# A stream has no end that could be waited for: tokenizer and unigram model see its beginning.
STREAM_SAMPLE = 10_000


def read_text(
    args: DataArguments,
    tokenizer_name: str | None,
    vocab_size: int,
    max_length: int,
    seed: int,
    *,
    causal: bool = False,
    tokenizer_type: str = "bpe",
) -> tuple[Any, PreTrainedTokenizerFast]:
    """Read documents, load or train the tokenizer.

    Args:
        args: which text.
        tokenizer_name: folder or name; None trains one on the training documents.
        vocab_size: of a tokenizer to train.
        max_length: longest input of the model, in tokens.
        seed: of the split and the order.
        causal: the tokenizer is for a causal language model.
        tokenizer_type: of one to train, "bpe" or "word".

    Returns:
        Splits `train` and `validation` of `load_documents`, and the tokenizer.

    Raises:
        ValueError: an evaluation file, a tokenizer or a vocabulary that cannot be used, before
            the training text is read; and for text that cannot be.
    """
    for file in args.validation_file or []:
        find_file(file)
    tokenizer = None
    if tokenizer_name is not None:
        tokenizer = load_or_train_tokenizer(
            tokenizer_name, (), vocab_size, max_length, causal=causal
        )
    else:
        check_vocabulary_size(vocab_size, tokenizer_type)
    documents: Any = load_documents(args, seed)
    if tokenizer is None:
        tokenizer = load_or_train_tokenizer(
            None,
            (row["text"] for row in beginning(documents["train"])),
            vocab_size,
            max_length,
            total=None if args.streaming else len(documents["train"]),
            causal=causal,
            kind=tokenizer_type,
        )
    return documents, tokenizer


def beginning(dataset: Any) -> Any:
    """A data set in memory as it is; of a stream the first rows."""
    return dataset if hasattr(dataset, "__len__") else dataset.take(STREAM_SAMPLE)
