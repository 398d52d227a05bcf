"""The arguments of a causal-LM run, by kind."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from transformers import TrainingArguments

from hf_linear_attn.training.arguments import DataArguments, ModelArguments


@dataclass
class CausalLMTaskArguments:
    """What a causal language model sees of a text, and what it writes at the end."""

    _argument_group_name = "causal language modelling"

    keep_documents_apart: bool = field(
        default=False,
        metadata={
            "help": "documents that share a block do not see each other, and positions begin anew "
            "in each; with data_format=blocks (in the other formats they never share one)"
        },
    )
    stride: int | None = field(
        default=None,
        metadata={
            "help": "evaluate by sliding windows of block_size that lie so many tokens apart, so "
            "that each token has at least block_size - 1 - stride tokens before it, where the text "
            "has them; null evaluates block by block. A smaller one is slower"
        },
    )
    prompts: list[str] | None = field(
        default=None,
        metadata={
            "help": "texts to continue when the training is over; null takes the beginnings of "
            "evaluation documents"
        },
    )
    max_new_tokens: int = field(
        default=40,
        metadata={"help": "tokens to write after each prompt; 0 writes nothing"},
    )
    temperature: float = field(
        default=0.8,
        metadata={"help": "of the distribution the tokens are drawn from; 0 takes the likeliest"},
    )

    def __post_init__(self) -> None:
        """Check the numbers."""
        if isinstance(self.prompts, str):
            self.prompts = [self.prompts]
        if any(not prompt.strip() for prompt in self.prompts or ()):
            raise ValueError("prompts: got an empty text, expected texts with a word in them")
        if self.stride is not None and self.stride < 1:
            raise ValueError(f"stride: got {self.stride}, expected 1 or more, or null")
        if self.max_new_tokens < 0:
            raise ValueError(f"max_new_tokens: got {self.max_new_tokens}, expected 0 or more")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature: got {self.temperature}, expected 0 or more")

    def check_with(self, data: DataArguments) -> None:
        """Raise ValueError where these arguments and those of the data contradict each other."""
        if self.keep_documents_apart and data.data_format != "blocks":
            raise ValueError(
                f"keep_documents_apart is for data_format blocks; with {data.data_format} no two "
                "documents share an example: leave it out"
            )
        if self.stride is not None and self.stride > data.block_size - 1:
            raise ValueError(
                f"stride {self.stride} would leave tokens out: a window of block_size "
                f"{data.block_size} scores at most {data.block_size - 1}; lower stride"
            )


class CausalLMArguments(NamedTuple):
    """All arguments of a run, in the order in which `--help` shows them."""

    model: ModelArguments
    data: DataArguments
    task: CausalLMTaskArguments
    training: TrainingArguments

    @property
    def output_dir(self) -> Path:
        """Where the run lives."""
        return Path(str(self.training.output_dir))
