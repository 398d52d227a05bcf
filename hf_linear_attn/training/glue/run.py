"""One run: a model finetuned, or trained, on one task."""

from collections.abc import Mapping, Sequence
from typing import Any

from accelerate.utils import parse_flag_from_env
from rich.console import Console
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    TrainerCallback,
)
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.trainer_pt_utils import get_model_param_count
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.training import model_setup
from hf_linear_attn.training.cache_damage import damaged_cache_is_named
from hf_linear_attn.training.callbacks import LossCurve, write_loss_curve
from hf_linear_attn.training.engines import launch_words, shares_weights
from hf_linear_attn.training.glue.arguments import GlueArguments
from hf_linear_attn.training.glue.data import Checkpoint, check_rows, prepare_task
from hf_linear_attn.training.glue.labels import checkpoint_classes, label_fields
from hf_linear_attn.training.glue.report import (
    TaskResults,
    loading_command,
    metric_prefix,
    show_report,
    task_card,
)
from hf_linear_attn.training.glue.sources import NamedDataset, find_sources
from hf_linear_attn.training.glue.submission import write_submission
from hf_linear_attn.training.glue.task_choice import task_of
from hf_linear_attn.training.glue.tasks import TEST_SPLITS
from hf_linear_attn.training.report import commands_to_go_on
from hf_linear_attn.training.run import Run
from hf_linear_attn.training.run_card import run_card
from hf_linear_attn.training.run_checks import (
    check_best_metric,
    check_training_arguments,
    longer_run,
)
from hf_linear_attn.training.run_folder import RunFolder
from hf_linear_attn.training.tokenizer import check_vocabulary_size, describe_tokenizer
from hf_linear_attn.training.trainer import RecipeTrainer


class GlueRun(Run):
    """One task, one seed.

    Args:
        args: of one task.
        recipe: path of the program, for the commands to run next.
    """

    def __init__(self, args: GlueArguments, recipe: str) -> None:
        super().__init__(args)
        self.args = args
        self.recipe = recipe

    def check(self) -> None:
        """Arguments, where the rows are, and a draft of the model."""
        self.task = task_of(self.args.task)
        self.sources = find_sources(self.args.task, self.task)
        check_training_arguments(self.training, predicts=True)
        several = ("score",) if len(self.task.metrics) > 1 else ()
        check_best_metric(self.training, (*self.task.metrics, *several, "loss"))
        self._check_predictions()
        if self.training.label_smoothing_factor and self.task.is_regression:
            raise ValueError(f"label_smoothing_factor: {self.task.name} is a regression")
        if self.training.prediction_loss_only:
            raise ValueError("prediction_loss_only leaves the task's metrics out; leave it out")
        self._check_model()

    def prepare(self, folder: RunFolder) -> dict[str, str]:
        """Tokenizer, examples, baseline."""
        model = self.args.model
        tokenizer = folder.checkpoint or model.tokenizer_name or model.model_name_or_path
        self.tokenizer_name = None if tokenizer is None else str(tokenizer)
        self.data = prepare_task(
            self.args.task,
            self.task,
            self.sources,
            self.checkpoint,
            tokenizer_name=self.tokenizer_name,
            vocab_size=model.vocab_size,
            tokenizer_type=model.tokenizer_type,
            token_types=self.token_types,
            is_decoder=self.is_decoder,
        )
        if self.data.shows_test and self.training.load_best_model_at_end:
            raise ValueError(
                f"load_best_model_at_end would choose the checkpoint of {self.task.name} by its "
                "test rows; hold rows out with --validation_fraction, or leave it out"
            )
        if self.training.do_predict and not self.data.test:
            raise ValueError("do_predict: there are no test rows; leave it out")
        return self.data.fingerprint

    def check_rows(self) -> None:
        """Read the rows and look at their labels, without tokenizing anything; after `check`."""
        first = self.training.main_process_first(desc="reading rows")
        with first, damaged_cache_is_named():
            check_rows(self.args.task, self.task, self.sources, self.checkpoint)

    def describe(self) -> list[str]:
        """The tokenizer, the task, its rows, and how they were chosen."""
        tokenizer = describe_tokenizer(self.tokenizer_name, self.data.tokenizer)
        return [tokenizer, *self.data.description]

    def build_model(self) -> PreTrainedModel:
        """New, or on a saved trunk, with the classes in the model's order."""
        fields = label_fields(self.data.order)
        config = model_setup.build_config(self.args.model, self.data.tokenizer, **fields)
        shared = shares_weights(self.training)
        if not self.args.task.new_head:
            auto_class = AutoModelForSequenceClassification
            return model_setup.build_model(self.args.model, config, auto_class, shared=shared)
        trunk = model_setup.build_model(self.args.model, config, AutoModel, shared=shared)
        model = AutoModelForSequenceClassification.from_config(config)
        model.base_model.load_state_dict(trunk.state_dict())
        return model

    def build_trainer(
        self, model: PreTrainedModel, callbacks: Sequence[TrainerCallback], folder: RunFolder
    ) -> RecipeTrainer:
        """A trainer that pads each batch to its longest row."""
        # A run that goes on has its first evaluation in the history.
        self.training.eval_on_start = self.training.eval_on_start and folder.checkpoint is None
        return RecipeTrainer(
            model,
            self.training,
            data_collator=DataCollatorWithPadding(self.data.tokenizer),
            train_dataset=self.data.train,
            eval_dataset=next(iter(self.data.evaluation.values())),
            processing_class=self.data.tokenizer,
            compute_metrics=self.data.scores,
            callbacks=[LossCurve(label=self.loss_label), *callbacks],
        )

    def measure(self, trainer: RecipeTrainer, trained: TrainOutput) -> dict[str, Any]:
        """All evaluation rows, the labelled test rows once, and predictions of the test rows."""
        first, *others = self.data.evaluation
        after = dict(trainer.final_evaluation())
        prefixes = {first: "eval", **{split: metric_prefix(split) for split in others}}
        examples = dict(self.data.evaluation)
        for split in self.data.test:
            if "labels" in self.data.test[split].column_names:
                prefixes[split], examples[split] = split, self.data.test[split]
        for split in list(prefixes)[1:]:
            prefix = prefixes[split]
            after |= trainer.evaluate(examples[split], metric_key_prefix=prefix)  # pyright: ignore
        self.predictions = self._predict(trainer) if self.training.do_predict else {}
        names = [*self.task.metrics] + (["score"] if len(self.task.metrics) > 1 else [])
        self.results = TaskResults(
            metrics={s: {n: after[f"{p}_{n}"] for n in names} for s, p in prefixes.items()},
            baseline=self.data.baseline,
            examples={split: len(examples[split]) for split in prefixes},
            constant=self.data.constant,
            positive=self.data.task.positive,
            samples=self.data.samples,
            seed=self.training.seed,
            steps=trained.global_step,
            tokens_per_second=trained.metrics.get("train_tokens_per_second"),
            parameters=get_model_param_count(trainer.model),
        )
        for split, baseline in self.data.baseline.items():
            after |= {f"{prefixes[split]}_baseline_{n}": v for n, v in baseline.items()}
        return after | self._facts(prefixes)

    def _facts(self, prefixes: Mapping[str, str]) -> dict[str, Any]:
        """What a table over several runs needs to know of the figures."""
        facts: dict[str, Any] = {}
        for split, prefix in prefixes.items():
            rows, is_sample = self.results.examples[split], split in self.data.samples
            facts |= {f"{prefix}_split": split, f"{prefix}_rows": rows}
            facts[f"{prefix}_is_sample"] = is_sample
        return facts | {"positive_class": self.data.task.positive}

    def finish(self, trainer: RecipeTrainer, console: Console) -> None:
        """Predictions, card and loss curve; table and commands."""
        files = [
            write_submission(
                self.output_dir / "predictions",
                split,
                self.task,
                self.data.order,
                self.data.test_index[split],
                logits,
            )
            for split, logits in self.predictions.items()
        ]
        first = next(iter(self.data.evaluation.values()))
        example = str(self.data.tokenizer.decode(first[0]["input_ids"], skip_special_tokens=True))
        card = task_card(self.args.task, self.sources, self.data, self.results, example)
        facts = run_card(
            trainer.trained_model,
            self.training,
            card,
            steps=self.results.steps,
            tokens_per_second=self.results.tokens_per_second,
            started_from=self.args.model.model_name_or_path,
        )
        write_model_card(self.output_dir, facts)
        write_loss_curve(trainer.state.log_history, self.output_dir, label=self.loss_label)
        title, commands = self.task.title, self.commands()
        show_report(console, title, self.results, files, commands, self.output_dir)

    def commands(self) -> list[tuple[str, str]]:
        """Load it, go on, compare."""
        model = self.args.model
        # A saved model has its attention.
        others = model_setup.attentions_for(model)
        going_on = commands_to_go_on(
            launch_words(self.training, self.recipe),
            self.output_dir,
            longer_run(self.training),
            next(iter(others), None),
        )
        pair = len(self.task.text_columns) > 1
        loading = loading_command(str(self.output_dir), pair)
        return [("load the model in Python", loading), *going_on]

    @property
    def loss_label(self) -> str:
        """What the loss is."""
        return "mean squared error" if self.task.is_regression else "cross-entropy (nats)"

    def _check_model(self) -> None:
        """A draft of it, the classes of a saved one, and the tokenizer that is to be trained."""
        model, new_head = self.args.model, self.args.task.new_head
        draft = model_setup.build_config(model)
        own = None if new_head else checkpoint_classes(draft)
        self.checkpoint = None
        if model.model_name_or_path is not None:
            self.checkpoint = Checkpoint(model.model_name_or_path, own)
        elif new_head:
            raise ValueError("new_head: a new model has no other head; give --model_name_or_path")
        elif model.tokenizer_name is None:
            check_vocabulary_size(model.vocab_size, model.tokenizer_type)
        in_parts = parse_flag_from_env("ACCELERATE_DEEPSPEED_ZERO3_INIT")
        if new_head and in_parts and is_deepspeed_zero3_enabled():
            raise ValueError(
                "new_head and mnli_checkpoint copy an encoder's weights, which zero3_init_flag "
                "builds in parts; set it to false in the launcher's file"
            )
        draft = draft.settle()
        model_setup.check_block_size(draft, self.args.task.max_length, "max_length")
        self.token_types = draft.type_vocab_size > 1
        self.is_decoder = bool(draft.is_decoder)

    def _check_predictions(self) -> None:
        """Where the files are known, so are the test rows."""
        known: Mapping[str, Any] | None = (
            self.sources if isinstance(self.sources, Mapping) else None
        )
        if isinstance(self.sources, NamedDataset) or not self.training.do_predict:
            return
        if known is None or not set(TEST_SPLITS) & set(known):
            raise ValueError("do_predict: there are no test rows; leave it out")

    def _predict(self, trainer: RecipeTrainer) -> dict[str, Any]:
        """Logits of each test split, on all processes."""
        predictions = {}
        for split, examples in self.data.test.items():
            rows = examples
            if "labels" in rows.column_names:
                rows = rows.remove_columns("labels")
            predictions[split] = trainer.predict(rows, metric_key_prefix=split).predictions  # pyright: ignore
        return predictions
