"""Pretrain an encoder as a masked language model.

    accelerate launch recipes/mlm.py
    accelerate launch recipes/mlm.py --config recipes/configs/mlm/cosformer-base.yaml \
        --train_file text.txt --output_dir runs/mine

Without `--config` it does what `recipes/configs/mlm/tiny-cpu.yaml` says: a small cosFormer on the
embedded corpus, two minutes on a CPU. The same command again goes on where the run stopped.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import AutoModelForMaskedLM, PreTrainedModel, TrainerCallback
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.training import model_setup
from hf_linear_attn.training.callbacks import write_loss_curve
from hf_linear_attn.training.card_facts import card_facts, data_source
from hf_linear_attn.training.engines import launch_words
from hf_linear_attn.training.fill_mask import fill_one_mask
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.masked_lm_data import prepare_masked_lm
from hf_linear_attn.training.program import run_program
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.report import (
    MASKED_LM,
    filled_mask_lines,
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
from hf_linear_attn.training.trainer import MaskedLMTrainer, RecipeTrainer

RECIPE = os.path.relpath(__file__)
DEFAULT_CONFIG = Path(RECIPE).parent / "configs" / "mlm" / "tiny-cpu.yaml"


class MaskedLMRun(Run):
    """Masked-language-model pretraining."""

    def __init__(self, args: MaskedLMArguments) -> None:
        super().__init__(args)
        self.args = args

    def check(self) -> None:
        """Arguments, and a draft of the model."""
        check_training_arguments(self.training, streaming=self.args.data.streaming)
        check_no_smoothing(self.training)
        draft = model_setup.build_config(self.args.model)
        model_setup.check_kind(draft, self.args.model, is_decoder=False)
        draft = draft.settle(is_decoder=False)
        model_setup.check_block_size(draft, self.args.data.block_size)
        self.max_length = draft.max_position_embeddings

    def prepare(self, folder: RunFolder) -> dict[str, str]:
        """Tokenizer, masked examples, unigram model."""
        model = self.args.model
        tokenizer = folder.checkpoint or model.tokenizer_name or model.model_name_or_path
        self.data = prepare_masked_lm(
            self.args.data,
            self.args.masking,
            tokenizer_name=None if tokenizer is None else str(tokenizer),
            vocab_size=model.vocab_size,
            max_length=self.max_length,
            seed=self.training.seed,
            tokenizer_type=model.tokenizer_type,
        )
        return self.data.fingerprint

    def describe(self) -> list[str]:
        """Where the text is from, and how many examples it gave."""
        return [data_source(self.args.data), self.data.description]

    def build_model(self) -> PreTrainedModel:
        """New or saved, with the tokenizer's vocabulary."""
        config = model_setup.build_config(self.args.model, self.data.tokenizer)
        return model_setup.build_model(self.args.model, config, AutoModelForMaskedLM)

    def build_trainer(
        self, model: PreTrainedModel, callbacks: Sequence[TrainerCallback], folder: RunFolder
    ) -> RecipeTrainer:
        """A trainer that evaluates before training, once."""
        self.training.eval_on_start = folder.checkpoint is None
        return MaskedLMTrainer(
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
            trainer, trained, after, self.data.unigram, self.args.model.attention, MASKED_LM
        )
        return after

    def finish(self, trainer: RecipeTrainer, console: Console) -> None:
        """Card and loss curve; table, a filled mask and commands."""
        model, length = trainer.trained_model, self.args.data.block_size
        example = fill_one_mask(model, self.data.tokenizer, self.data.evaluation_texts, length)
        facts = card_facts(model, self.args, self.results, self.data.description, example.sentence)
        write_model_card(self.output_dir, facts)
        write_loss_curve(trainer.state.log_history, self.output_dir, self.data.unigram.loss)
        lines = filled_mask_lines(example)
        show_report(console, self.results, lines, self.commands(), self.output_dir)

    def commands(self) -> list[tuple[str, str]]:
        """Load it, go on, compare."""
        return next_commands(
            launch_words(self.training, RECIPE),
            self.output_dir,
            MASKED_LM,
            longer=longer_run(self.training),
            other_attention=next(iter(model_setup.attentions_for(self.args.model)), None),
        )


def main(argv: list[str]) -> None:
    """One run."""
    parser = RecipeParser(tuple(MaskedLMArguments.__annotations__.values()))
    args = MaskedLMArguments(*parse_arguments(parser, argv, DEFAULT_CONFIG))
    carry_out(MaskedLMRun(args))


if __name__ == "__main__":
    run_program(main)
