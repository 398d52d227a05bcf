"""What the runs of masked and causal language models share."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.console import Console
from rich.text import Text
from transformers import PreTrainedModel, TrainerCallback
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.integrations.model_card import CardFacts, write_model_card
from hf_linear_attn.training import model_setup
from hf_linear_attn.training.callbacks import write_loss_curve
from hf_linear_attn.training.card_facts import data_source
from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.causal_lm_data import CausalLMData
from hf_linear_attn.training.engines import launch_words, shares_weights
from hf_linear_attn.training.masked_lm_arguments import MaskedLMArguments
from hf_linear_attn.training.masked_lm_data import MaskedLMData
from hf_linear_attn.training.report import (
    LanguageTask,
    gather_results,
    next_commands,
    show_report,
)
from hf_linear_attn.training.run import Run
from hf_linear_attn.training.run_checks import (
    check_best_metric,
    check_no_smoothing,
    check_training_arguments,
    longer_run,
)
from hf_linear_attn.training.run_folder import RunFolder
from hf_linear_attn.training.tokenizer import describe_tokenizer
from hf_linear_attn.training.trainer import LanguageModelTrainer, RecipeTrainer


class LanguageModelRun(Run):
    """Pretraining of a language model, new or saved.

    Attributes:
        words: of the task.
        auto_class: of Transformers.
        trainer_class: of `training.trainer`.
        is_decoder: what is trained.

    Args:
        args: of the run.
        recipe: path of the program, for the commands at the end.
    """

    words: ClassVar[LanguageTask]
    auto_class: ClassVar[Any]
    trainer_class: ClassVar[type[LanguageModelTrainer]]
    is_decoder: ClassVar[bool]

    def __init__(self, args: MaskedLMArguments | CausalLMArguments, recipe: str) -> None:
        super().__init__(args)
        self.model_args, self.data_args = args.model, args.data
        self.recipe = recipe

    @abstractmethod
    def read_data(self, text: dict[str, Any]) -> MaskedLMData | CausalLMData:
        """Prepare the data.

        Args:
            text: what `prepare_masked_lm` and `prepare_causal_lm` want to know of the text.
        """

    @abstractmethod
    def example(self, model: PreTrainedModel) -> tuple[list[Text], CardFacts]:
        """Lines that show what the model can do, and the facts of its card."""

    def check(self) -> None:
        """Arguments, and a draft of the model."""
        check_training_arguments(self.training, streaming=self.data_args.streaming)
        check_no_smoothing(self.training)
        check_best_metric(self.training, ("loss", "perplexity", self.trainer_class.accuracy_name))
        draft = model_setup.build_config(self.model_args)
        model_setup.check_kind(draft, self.model_args, is_decoder=self.is_decoder)
        draft = draft.settle(is_decoder=self.is_decoder)
        model_setup.check_block_size(draft, self.data_args.block_size)
        self.max_length = draft.max_position_embeddings
        self.longest_input = model_setup.longest_input(draft)

    def prepare(self, folder: RunFolder) -> dict[str, str]:
        """Tokenizer, examples, unigram model; a run that goes on keeps the tokenizer it has."""
        args = self.model_args
        tokenizer = folder.checkpoint or args.tokenizer_name or args.model_name_or_path
        self.tokenizer_name = None if tokenizer is None else str(tokenizer)
        text = {
            "tokenizer_name": self.tokenizer_name,
            "vocab_size": args.vocab_size,
            "max_length": self.max_length,
            "seed": self.training.seed,
            "tokenizer_type": args.tokenizer_type,
        }
        self.data = self.read_data(text)
        return self.data.fingerprint

    def describe(self) -> list[str]:
        """Where text and tokenizer are from, and how many examples the text gave."""
        return [
            data_source(self.data_args),
            describe_tokenizer(self.tokenizer_name, self.data.tokenizer),
            self.data.description,
        ]

    def build_model(self) -> PreTrainedModel:
        """New or saved, with the tokenizer's vocabulary."""
        config = model_setup.build_config(self.model_args, self.data.tokenizer)
        shared = shares_weights(self.training)
        return model_setup.build_model(self.model_args, config, self.auto_class, shared=shared)

    def build_trainer(
        self, model: PreTrainedModel, callbacks: Sequence[TrainerCallback], folder: RunFolder
    ) -> RecipeTrainer:
        """A trainer that evaluates before training, once."""
        self.training.eval_on_start = folder.checkpoint is None
        return self.trainer_class(
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
            trainer, trained, after, self.data.unigram, self.model_args.attention, self.words
        )
        return after

    def finish(self, trainer: RecipeTrainer, console: Console) -> None:
        """Card and loss curve; table, an example and commands."""
        lines, facts = self.example(trainer.trained_model)
        write_model_card(self.output_dir, facts)
        write_loss_curve(trainer.state.log_history, self.output_dir, self.data.unigram.loss)
        show_report(console, self.results, lines, self.commands(), self.output_dir)

    def commands(self) -> list[tuple[str, str]]:
        """Load it, go on, compare."""
        others = model_setup.attentions_for(self.model_args, is_decoder=self.is_decoder)
        return next_commands(
            launch_words(self.training, self.recipe),
            self.output_dir,
            self.words,
            longer=longer_run(self.training),
            other_attention=next(iter(others), None),
        )
