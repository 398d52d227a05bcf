"""Pretrain a decoder as a causal language model, or go on training a saved one.

    accelerate launch recipes/clm.py
    accelerate launch recipes/clm.py --config recipes/configs/clm/transnormer_alm_wt103.yaml \
        --train_file wiki.train.tokens --validation_file wiki.valid.tokens

Without `--config` it does what `recipes/configs/clm/tiny-cpu.yaml` says: a small cosFormer on the
embedded corpus, less than a minute on a CPU. The same command again goes on where the run stopped.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import AutoModelForCausalLM, PreTrainedModel, TrainerCallback
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.training import model_setup
from hf_linear_attn.training.callbacks import write_loss_curve
from hf_linear_attn.training.card_facts import causal_lm_facts, data_source
from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.causal_lm_data import prepare_causal_lm
from hf_linear_attn.training.continuation import beginnings, check_prompts, continue_texts
from hf_linear_attn.training.engines import launch_words
from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.report import (
    CAUSAL_LM,
    continuation_lines,
    gather_results,
    next_commands,
    show_report,
)
from hf_linear_attn.training.run import Run, carry_out
from hf_linear_attn.training.run_checks import (
    check_no_smoothing,
    check_training_arguments,
    longer_run,
    parse_arguments,
)
from hf_linear_attn.training.run_folder import RunFolder
from hf_linear_attn.training.trainer import CausalLMTrainer, RecipeTrainer

RECIPE = os.path.relpath(__file__)
DEFAULT_CONFIG = Path(RECIPE).parent / "configs" / "clm" / "tiny-cpu.yaml"


class CausalLMRun(Run):
    """Causal-language-model pretraining."""

    def __init__(self, args: CausalLMArguments) -> None:
        super().__init__(args)
        self.args = args

    def check(self) -> None:
        """Arguments, and a draft of the model."""
        check_training_arguments(self.training, streaming=self.args.data.streaming)
        check_no_smoothing(self.training)
        self.args.task.check_with(self.args.data)
        draft = model_setup.build_config(self.args.model)
        model_setup.check_kind(draft, self.args.model, is_decoder=True)
        draft = draft.settle(is_decoder=True)
        model_setup.check_block_size(draft, self.args.data.block_size)
        self.max_length = draft.max_position_embeddings
        self.longest_input = model_setup.longest_input(draft)

    def prepare(self, folder: RunFolder) -> dict[str, str]:
        """Tokenizer, labelled examples, unigram model, prompts."""
        model, task = self.args.model, self.args.task
        tokenizer = folder.checkpoint or model.tokenizer_name or model.model_name_or_path
        self.data = prepare_causal_lm(
            self.args.data,
            task,
            tokenizer_name=None if tokenizer is None else str(tokenizer),
            vocab_size=model.vocab_size,
            max_length=self.max_length,
            seed=self.training.seed,
            tokenizer_type=model.tokenizer_type,
        )
        texts, limit = self.data.evaluation_texts, self.longest_input
        self.prompts = task.prompts or beginnings(texts, self.data.tokenizer, limit)
        check_prompts(self.prompts, self.data.tokenizer, limit)
        return self.data.fingerprint

    def describe(self) -> list[str]:
        """Where the text is from, and how many examples it gave."""
        return [data_source(self.args.data), self.data.description]

    def build_model(self) -> PreTrainedModel:
        """New or saved, with the tokenizer's vocabulary."""
        config = model_setup.build_config(self.args.model, self.data.tokenizer)
        return model_setup.build_model(self.args.model, config, AutoModelForCausalLM)

    def build_trainer(
        self, model: PreTrainedModel, callbacks: Sequence[TrainerCallback], folder: RunFolder
    ) -> RecipeTrainer:
        """A trainer that evaluates before training, once."""
        self.training.eval_on_start = folder.checkpoint is None
        return CausalLMTrainer(
            model,
            self.training,
            self.data.collator,
            self.data.train,
            self.data.evaluation,
            self.data.tokenizer,
            self.data.unigram.loss,
            callbacks=callbacks,
        )

    def measure(self, trainer: RecipeTrainer, trained: TrainOutput) -> dict[str, Any]:
        """The evaluation after training, beside that before it and the unigram model."""
        after = trainer.final_evaluation()
        self.results = gather_results(
            trainer, trained, after, self.data.unigram, self.args.model.attention, CAUSAL_LM
        )
        return after

    def finish(self, trainer: RecipeTrainer, console: Console) -> None:
        """Card and loss curve; table, continued texts and commands."""
        model, task = trainer.trained_model, self.args.task
        written = continue_texts(
            model,
            self.data.tokenizer,
            self.prompts,
            max_length=self.longest_input,
            max_new_tokens=task.max_new_tokens,
            temperature=task.temperature,
            seed=self.training.seed,
        )
        prompt = self.prompts[0] if self.prompts else "The"
        facts = causal_lm_facts(model, self.args, self.results, self.data.description, prompt)
        write_model_card(self.output_dir, facts)
        write_loss_curve(trainer.state.log_history, self.output_dir, self.data.unigram.loss)
        lines = continuation_lines(written)
        show_report(console, self.results, lines, self.commands(), self.output_dir)

    def commands(self) -> list[tuple[str, str]]:
        """Load it, go on, compare."""
        others = model_setup.attentions_for(self.args.model, is_decoder=True)
        return next_commands(
            launch_words(self.training, RECIPE),
            self.output_dir,
            CAUSAL_LM,
            longer=longer_run(self.training),
            other_attention=next(iter(others), None),
        )


def main(argv: list[str]) -> None:
    """One run."""
    parser = RecipeParser(tuple(CausalLMArguments.__annotations__.values()))
    args = CausalLMArguments(*parse_arguments(parser, argv, DEFAULT_CONFIG))
    carry_out(CausalLMRun(args))


if __name__ == "__main__":
    run_program(main)
