"""Pretrain an encoder as a masked language model.

    accelerate launch recipes/mlm.py
    accelerate launch recipes/mlm.py --config recipes/configs/mlm/cosformer-base.yaml \
        --train_file text.txt --output_dir runs/mine

Without `--config` it does what `recipes/configs/mlm/tiny-cpu.yaml` says: a small cosFormer on the
embedded corpus, two minutes on a CPU. The same command again goes on where the run stopped.
"""

import os
from pathlib import Path
from typing import Any

from rich.text import Text
from transformers import AutoModelForMaskedLM, PreTrainedModel

from hf_linear_attn.integrations.model_card import CardFacts
from hf_linear_attn.training.card_facts import card_facts
from hf_linear_attn.training.fill_mask import fill_one_mask
from hf_linear_attn.training.language_model_run import LanguageModelRun
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.masked_lm_data import MaskedLMData, prepare_masked_lm
from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.report import MASKED_LM, filled_mask_lines
from hf_linear_attn.training.run import carry_out
from hf_linear_attn.training.run_checks import parse_arguments
from hf_linear_attn.training.trainer import MaskedLMTrainer

RECIPE = os.path.relpath(__file__)
DEFAULT_CONFIG = Path(RECIPE).parent / "configs" / "mlm" / "tiny-cpu.yaml"


class MaskedLMRun(LanguageModelRun):
    """Masked-language-model pretraining."""

    words = MASKED_LM
    auto_class = AutoModelForMaskedLM
    trainer_class = MaskedLMTrainer
    is_decoder = False

    def __init__(self, args: MaskedLMArguments) -> None:
        super().__init__(args, RECIPE)
        self.args = args

    def read_data(self, text: dict[str, Any]) -> MaskedLMData:
        """Masked examples."""
        return prepare_masked_lm(self.args.data, self.args.masking, **text)

    def example(self, model: PreTrainedModel) -> tuple[list[Text], CardFacts]:
        """A filled mask."""
        data, length = self.data, self.args.data.block_size
        filled = fill_one_mask(model, data.tokenizer, data.evaluation_texts, length)
        facts = card_facts(model, self.args, self.results, data.description, filled.sentence)
        return filled_mask_lines(filled), facts


def main(argv: list[str]) -> None:
    """One run."""
    parser = RecipeParser(tuple(MaskedLMArguments.__annotations__.values()))
    args = MaskedLMArguments(*parse_arguments(parser, argv, DEFAULT_CONFIG))
    carry_out(MaskedLMRun(args))


if __name__ == "__main__":
    run_program(main)
