"""Pretrain a decoder as a causal language model, or go on training a saved one.

    accelerate launch recipes/clm.py
    accelerate launch recipes/clm.py --config recipes/configs/clm/transnormer_alm_wt103.yaml \
        --train_file wiki.train.tokens --validation_file wiki.valid.tokens

Without `--config` it does what `recipes/configs/clm/tiny-cpu.yaml` says: a small cosFormer on the
embedded corpus, less than a minute on a CPU. The same command again goes on where the run stopped.
"""

import os
from pathlib import Path
from typing import Any

from rich.text import Text
from transformers import AutoModelForCausalLM, PreTrainedModel

from hf_linear_attn.integrations.model_card import CardFacts
from hf_linear_attn.training.card_facts import causal_lm_facts
from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.causal_lm_data import CausalLMData, prepare_causal_lm
from hf_linear_attn.training.continuation import beginnings, check_prompts, continue_texts
from hf_linear_attn.training.language_model_run import LanguageModelRun
from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.report import CAUSAL_LM, continuation_lines
from hf_linear_attn.training.run import carry_out
from hf_linear_attn.training.run_checks import parse_arguments
from hf_linear_attn.training.trainer import CausalLMTrainer

RECIPE = os.path.relpath(__file__)
DEFAULT_CONFIG = Path(RECIPE).parent / "configs" / "clm" / "tiny-cpu.yaml"


class CausalLMRun(LanguageModelRun):
    """Causal-language-model pretraining."""

    words = CAUSAL_LM
    auto_class = AutoModelForCausalLM
    trainer_class = CausalLMTrainer
    is_decoder = True

    def __init__(self, args: CausalLMArguments) -> None:
        super().__init__(args, RECIPE)
        self.args = args

    def check(self) -> None:
        """Those of the task, too."""
        super().check()
        self.args.task.check_with(self.args.data)

    def read_data(self, text: dict[str, Any]) -> CausalLMData:
        """Labelled examples, and the prompts that the trained model will go on with."""
        data = prepare_causal_lm(self.args.data, self.args.task, **text)
        limit = self.longest_input
        given = self.args.task.prompts
        self.prompts = given or beginnings(data.evaluation_texts, data.tokenizer, limit)
        check_prompts(self.prompts, data.tokenizer, limit)
        return data

    def example(self, model: PreTrainedModel) -> tuple[list[Text], CardFacts]:
        """Continued texts."""
        written = continue_texts(
            model,
            self.data.tokenizer,
            self.prompts,
            max_length=self.longest_input,
            max_new_tokens=self.args.task.max_new_tokens,
            temperature=self.args.task.temperature,
            seed=self.training.seed,
        )
        prompt = self.prompts[0] if self.prompts else "The"
        facts = causal_lm_facts(model, self.args, self.results, self.data.description, prompt)
        return continuation_lines(written), facts


def main(argv: list[str]) -> None:
    """One run."""
    parser = RecipeParser(tuple(CausalLMArguments.__annotations__.values()))
    args = CausalLMArguments(*parse_arguments(parser, argv, DEFAULT_CONFIG))
    carry_out(CausalLMRun(args))


if __name__ == "__main__":
    run_program(main)
