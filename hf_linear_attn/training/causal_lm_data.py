"""Everything a causal-LM run needs of its data: tokenizer, labelled examples, unigram baseline."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.blocks import build_examples, causal_lm_layout, describe
from hf_linear_attn.training.causal_lm_arguments import CausalLMTaskArguments
from hf_linear_attn.training.collators import IGNORED, CausalLMCollator, label_once
from hf_linear_attn.training.fingerprint import examples_fingerprint
from hf_linear_attn.training.metrics import Unigram, unigram_baseline
from hf_linear_attn.training.packing import Layout
from hf_linear_attn.training.text_and_tokenizer import beginning, read_text
from hf_linear_attn.training.token_ids import id_bound
from hf_linear_attn.training.windows import build_windows


@dataclass(frozen=True)
class CausalLMData:
    """Prepared data.

    Attributes:
        tokenizer: loaded or trained; it leaves a text open.
        train: tokenised rows, labelled by `collator` as they are used.
        evaluation: rows with labels, -100 where nothing is predicted.
        evaluation_texts: the documents behind `evaluation`.
        collator: for both.
        unigram: the unigram model of the training tokens on the predicted evaluation tokens.
        description: counts, one line a split.
        fingerprint: of the training examples (of a stream its beginning) and the evaluation
            examples.
    """

    tokenizer: PreTrainedTokenizerFast
    train: Any
    evaluation: Any
    evaluation_texts: Iterable[str]
    collator: CausalLMCollator
    unigram: Unigram
    description: str
    fingerprint: dict[str, str]


def prepare_causal_lm(
    data_args: DataArguments,
    task_args: CausalLMTaskArguments,
    tokenizer_name: str | None,
    vocab_size: int,
    max_length: int,
    seed: int,
    tokenizer_type: str = "bpe",
) -> CausalLMData:
    """Read documents, load or train the tokenizer, cut and label examples, measure the unigram.

    Args:
        data_args: which data and how they are cut.
        task_args: whether documents see each other, and how evaluation is cut.
        tokenizer_name: folder or name; None trains one on the training documents.
        vocab_size: of a tokenizer to train.
        max_length: of a tokenizer to train, in tokens.
        seed: of the split and the order.
        tokenizer_type: of a tokenizer to train, "bpe" or "word".

    Raises:
        ValueError: an evaluation file, a tokenizer or a vocabulary that cannot be used, before
            the training text is read; and for data that cannot be.
    """
    documents, tokenizer = read_text(
        data_args,
        tokenizer_name,
        vocab_size,
        max_length,
        seed,
        causal=True,
        tokenizer_type=tokenizer_type,
    )
    apart = task_args.keep_documents_apart
    layout = causal_lm_layout(tokenizer, data_args.block_size, apart=apart)
    examples = build_examples(documents, tokenizer, data_args, layout)
    if task_args.stride is not None:
        windows = build_windows(
            documents["validation"], tokenizer, data_args, layout, task_args.stride
        )
        examples["validation"] = windows
    # First of all that reads the rows: it tells damaged ones.
    vocab_size = id_bound(tokenizer)
    fingerprint = {
        "training": examples_fingerprint(beginning(examples["train"]), vocab_size),
        "evaluation": examples_fingerprint(examples["validation"], vocab_size),
    }
    collator = CausalLMCollator(tokenizer)
    evaluation = examples["validation"]
    if "labels" not in evaluation.column_names:
        evaluation = label_once(evaluation, collator)
    counts = _target_counts(beginning(examples["train"]), collator, vocab_size)
    return CausalLMData(
        tokenizer=tokenizer,
        train=examples["train"],
        evaluation=evaluation,
        evaluation_texts=(row["text"] for row in documents["validation"]),
        collator=collator,
        unigram=unigram_baseline(counts, _never_predicted(tokenizer, layout), evaluation),
        description=describe(examples),
        fingerprint=fingerprint,
    )


def _target_counts(dataset: Any, collator: CausalLMCollator, vocab_size: int) -> np.ndarray:
    """How often each token is a target; start tokens are none, also where they are end tokens."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for row in tqdm(dataset, "Counting tokens", delay=2, leave=False, disable=None):
        labels = collator.label_row(row)["labels"][1:]
        counts += np.bincount(labels[labels != IGNORED], minlength=vocab_size)
    return counts


def _never_predicted(tokenizer: PreTrainedTokenizerFast, layout: Layout) -> list[int]:
    """Tokens that no text holds: the start, padding and mask tokens, if they are not the end."""
    mask = cast("int | None", tokenizer.mask_token_id)
    ids = {layout.start, layout.pad, mask} - {layout.end}
    return sorted(i for i in ids if i is not None)
