"""The arguments of a masked-LM run, by kind."""

from pathlib import Path
from typing import NamedTuple

from transformers import TrainingArguments

from hf_linear_attn.training.arguments import DataArguments, MaskingArguments, ModelArguments


class MaskedLMArguments(NamedTuple):
    """All arguments of a run, in the order in which `--help` shows them."""

    model: ModelArguments
    data: DataArguments
    masking: MaskingArguments
    training: TrainingArguments

    @property
    def output_dir(self) -> Path:
        """Where the run lives."""
        return Path(str(self.training.output_dir))
