"""Everything a masked-LM run needs of its data: tokenizer, masked examples, unigram baseline."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_linear_attn.training.arguments import DataArguments, MaskingArguments
from hf_linear_attn.training.blocks import build_examples, describe
from hf_linear_attn.training.collators import EVALUATION_SEED, MaskedLMCollator, mask_once
from hf_linear_attn.training.fingerprint import examples_fingerprint
from hf_linear_attn.training.metrics import Unigram, token_counts, unigram_baseline
from hf_linear_attn.training.text_and_tokenizer import beginning, read_text
from hf_linear_attn.training.token_ids import id_bound


@dataclass(frozen=True)
class MaskedLMData:
    """Prepared data.

    Attributes:
        tokenizer: loaded or trained.
        train: tokenised rows, masked by `collator` as they are used.
        evaluation: rows masked once and for all.
        evaluation_texts: the documents behind `evaluation`.
        collator: for the training rows.
        unigram: the unigram model of the training tokens on the masked evaluation tokens.
        description: counts, one line a split.
        fingerprint: of the training examples (of a stream its beginning) and the evaluation
            examples.
    """

    tokenizer: PreTrainedTokenizerBase
    train: Any
    evaluation: Any
    evaluation_texts: Iterable[str]
    collator: MaskedLMCollator
    unigram: Unigram
    description: str
    fingerprint: dict[str, str]


def prepare_masked_lm(
    data_args: DataArguments,
    masking_args: MaskingArguments,
    tokenizer_name: str | None,
    vocab_size: int,
    max_length: int,
    seed: int,
    tokenizer_type: str = "bpe",
) -> MaskedLMData:
    """Read documents, load or train the tokenizer, cut and mask examples, measure the unigram.

    Args:
        data_args: which data and how they are cut.
        masking_args: how they are masked.
        tokenizer_name: folder or name; None trains one on the training documents.
        vocab_size: of a tokenizer to train.
        max_length: of a tokenizer to train, in tokens.
        seed: of the split, the order and the training masks.
        tokenizer_type: of a tokenizer to train, "bpe" or "word".

    Raises:
        ValueError: an evaluation file, a tokenizer or a vocabulary that cannot be used, before
            the training text is read; and for data that cannot be.
    """
    documents, tokenizer = read_text(
        data_args, tokenizer_name, vocab_size, max_length, seed, tokenizer_type=tokenizer_type
    )
    examples = build_examples(documents, tokenizer, data_args)
    # First of all that reads the rows: it tells damaged ones.
    vocab_size = id_bound(tokenizer)
    fingerprint = {
        "training": examples_fingerprint(beginning(examples["train"]), vocab_size),
        "evaluation": examples_fingerprint(examples["validation"], vocab_size),
    }
    collator = _collator(tokenizer, masking_args, masking_args.mlm_probability, seed)
    rate = masking_args.eval_mlm_probability
    rate = masking_args.mlm_probability if rate is None else rate
    fixed = _collator(tokenizer, masking_args, rate, EVALUATION_SEED)
    evaluation = mask_once(examples["validation"], fixed)
    counts = token_counts(beginning(examples["train"]), vocab_size)
    return MaskedLMData(
        tokenizer=tokenizer,
        train=examples["train"],
        evaluation=evaluation,
        evaluation_texts=(row["text"] for row in documents["validation"]),
        collator=collator,
        unigram=unigram_baseline(counts, tokenizer.all_special_ids, evaluation),
        description=describe(examples),
        fingerprint=fingerprint,
    )


def _collator(
    tokenizer: PreTrainedTokenizerBase, args: MaskingArguments, probability: float, seed: int
) -> MaskedLMCollator:
    return MaskedLMCollator(
        tokenizer,
        args.masking,
        probability,
        span_length=args.span_length,
        mask_replace_prob=args.mask_replace_prob,
        random_replace_prob=args.random_replace_prob,
        seed=seed,
    )
