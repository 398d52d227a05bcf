"""The arguments that recipes share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.yaml_files import parse_overrides

__all__ = [
    "DataArguments",
    "MaskingArguments",
    "ModelArguments",
    "RecipeParser",
    "parse_overrides",
]

DataFormat = Literal["blocks", "documents", "lines", "text"]
Remainder = Literal["drop", "pad", "keep"]
Masking = Literal["token", "word", "span"]
TokenizerType = Literal["bpe", "word"]
SMALLEST_BLOCK = 8
MOST_PROCESSES = 1024


@dataclass
class ModelArguments:
    """Which model and tokenizer."""

    _argument_group_name = "model"

    attention: str = field(
        default="cosformer",
        metadata={"help": "the model's attention: its type, such as cosformer"},
    )
    config_overrides: str | None = field(
        default=None,
        metadata={
            "help": "config fields as field=value,field=value; values are YAML, and commas inside "
            "brackets or quotes do not split"
        },
    )
    model: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": "config fields as a mapping, usually from YAML; config_overrides goes over it"
        },
    )
    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "go on from this saved model instead of a new one"},
    )
    tokenizer_name: str | None = field(
        default=None,
        metadata={
            "help": "tokenizer on the Hub or in a folder; without it that of model_name_or_path is "
            "used, else a byte-level BPE is trained on the training documents"
        },
    )
    vocab_size: int = field(
        default=8192,
        metadata={
            "help": "size of the tokenizer to train, special tokens included; 261 gives plain bytes"
        },
    )
    tokenizer_type: TokenizerType = field(
        default="bpe",
        metadata={
            "help": "the tokenizer to train. bpe: byte-level, any text round-trips. word: what "
            "white space parts, the most frequent words; the others are <unk>, and the end of a "
            "line is the end token, as word-level results on WikiText have it"
        },
    )
    peak_tflops: float | None = field(
        default=None,
        metadata={
            "help": "peak of one device in TFLOP/s at the run's precision; the share of it that is "
            "used is logged as mfu (null: known GPUs are looked up, others log none)"
        },
    )

    def __post_init__(self) -> None:
        """Check the names given, the kind of tokenizer and the peak."""
        for name in self.model or {}:
            if not isinstance(name, str):
                raise ValueError(f"model: got the key {name!r}, expected the name of a field")
        for name in ("model_name_or_path", "tokenizer_name"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise ValueError(f"{name}: got an empty text; leave it out, or name one")
        _check_choice(self, "tokenizer_type", get_args(TokenizerType))
        if self.peak_tflops is not None and not 0 < self.peak_tflops < math.inf:
            raise ValueError(f"peak_tflops: got {self.peak_tflops}, expected a number above 0")


@dataclass
class DataArguments:
    """Which text, and how it is cut into examples."""

    _argument_group_name = "data"

    train_file: list[str] | None = field(
        default=None,
        metadata={
            "help": "training text: .txt, .jsonl, .json, .parquet, .csv or .tsv, one or several "
            "files; without it and without dataset_name the embedded corpus is used (Python's "
            "reference topics and the standard library's docstrings). A relative name that the "
            "current folder lacks is looked for under the folder in HF_LINEAR_ATTN_DATA"
        },
    )
    validation_file: list[str] | None = field(
        default=None,
        metadata={"help": "evaluation text, as train_file"},
    )
    dataset_name: str | None = field(
        default=None,
        metadata={
            "help": "data set on the Hub, or a local folder of data files, instead of train_file"
        },
    )
    dataset_config_name: str | None = field(
        default=None,
        metadata={"help": "configuration of dataset_name"},
    )
    streaming: bool = field(
        default=False,
        metadata={
            "help": "read the training text as it is needed, shuffled through a buffer of 1,000 "
            "documents; needs its own evaluation text and max_steps, and does not resume exactly: "
            "the buffer is not part of a checkpoint"
        },
    )
    text_column: str = field(
        default="text",
        metadata={"help": "column that holds the text (.txt files have none)"},
    )
    data_format: DataFormat = field(
        default="blocks",
        metadata={
            "help": "blocks: all documents in a row, one separator token between two of them, cut "
            "into blocks that begin with the start token; documents: one example a document; "
            "lines: one example a non-empty line. In .txt files blank lines end a document, "
            "everything else is text (with lines, each line is a document); elsewhere each row is "
            "one. A document or line that is too long becomes several examples, nothing is "
            "dropped. text: as blocks, but the text as it stands, with its blank lines and line "
            "ends, and nothing between two documents or files"
        },
    )
    block_size: int = field(
        default=512,
        metadata={"help": "longest example in tokens, special tokens included"},
    )
    remainder: Remainder = field(
        default="drop",
        metadata={
            "help": "what becomes of the last block's tokens when they do not fill it, with "
            "data_format=blocks"
        },
    )
    validation_fraction: float = field(
        default=0.05,
        metadata={
            "help": "share of the documents held out for evaluation where no evaluation text is "
            "given; equal documents never fall on both sides"
        },
    )
    max_train_examples: int | None = field(
        default=None,
        metadata={"help": "use only the first so many examples"},
    )
    max_eval_examples: int | None = field(
        default=None,
        metadata={"help": "evaluate only the first so many examples"},
    )
    preprocessing_num_workers: int | None = field(
        default=None,
        metadata={"help": "processes that tokenize (null: this one)"},
    )

    def __post_init__(self) -> None:
        """Check what can be known without looking at the data."""
        for name in ("train_file", "validation_file"):
            value = getattr(self, name)
            setattr(self, name, [value] if isinstance(value, str) else value)
        _check_choice(self, "data_format", get_args(DataFormat))
        _check_choice(self, "remainder", get_args(Remainder))
        _check_share(self, "validation_fraction", zero=False, one=False)
        if self.block_size < SMALLEST_BLOCK:
            raise ValueError(
                f"block_size: got {self.block_size}, expected {SMALLEST_BLOCK} or more"
            )
        for name in ("max_train_examples", "max_eval_examples", "preprocessing_num_workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: got {value}, expected 1 or more, or null for no limit")
        check_workers(self.preprocessing_num_workers)


@dataclass
class MaskingArguments:
    """Which tokens a masked language model has to guess."""

    _argument_group_name = "masking"

    masking: Masking = field(
        default="token",
        metadata={
            "help": "token: each by itself; word: all tokens of a word; span: runs of tokens"
        },
    )
    mlm_probability: float = field(
        default=0.15,
        metadata={"help": "expected share of masked tokens in training"},
    )
    eval_mlm_probability: float | None = field(
        default=None,
        metadata={"help": "expected share of masked tokens in evaluation (null: as in training)"},
    )
    span_length: float = field(
        default=3.0,
        metadata={"help": "mean length of a span in tokens, with masking=span"},
    )
    mask_replace_prob: float = field(
        default=0.8,
        metadata={"help": "share of them that become the mask token"},
    )
    random_replace_prob: float = field(
        default=0.1,
        metadata={"help": "share of them that become a random token; the rest stays as it is"},
    )

    def __post_init__(self) -> None:
        """Check that every rate is one."""
        _check_choice(self, "masking", get_args(Masking))
        for name in ("mlm_probability", "eval_mlm_probability"):
            _check_share(self, name, zero=False, one=True)
        for name in ("mask_replace_prob", "random_replace_prob"):
            _check_share(self, name, zero=True, one=True)
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-9:
            raise ValueError(
                "mask_replace_prob and random_replace_prob: expected a sum of at most 1, got "
                f"{self.mask_replace_prob} + {self.random_replace_prob}"
            )
        if not 1 <= self.span_length < math.inf:
            raise ValueError(f"span_length: got {self.span_length}, expected 1 or more")


def check_workers(number: int | None) -> None:
    """Raise ValueError for a number of processes that no machine could start."""
    if number is not None and number > MOST_PROCESSES:
        raise ValueError(
            f"preprocessing_num_workers: got {number}, expected {MOST_PROCESSES} at most"
        )


def _check_choice(arguments: Any, name: str, choices: Sequence[str]) -> None:
    value = getattr(arguments, name)
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(choices)}{hint}")


def _check_share(arguments: Any, name: str, zero: bool, one: bool) -> None:
    """Check that a field is None or between 0 and 1; `zero`, `one`: may it be just that?"""
    value = getattr(arguments, name)
    if value is None or 0 < value < 1 or (zero and value == 0) or (one and value == 1):
        return
    low, high = "at least 0" if zero else "above 0", "at most 1" if one else "below 1"
    raise ValueError(f"{name}: got {value}, expected a number {low} and {high}")
