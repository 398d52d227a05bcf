"""One Long Range Arena run: a task, a preset, an attention."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.text import Text
from transformers import PreTrainedModel, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_pt_utils import get_model_param_count
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.models.lra import LraForSequenceClassification
from hf_linear_attn.training.checkpoints import checkpoint_steps
from hf_linear_attn.training.engines import launch_words, shares_weights
from hf_linear_attn.training.lra.arguments import LraRunArguments
from hf_linear_attn.training.lra.card import lra_card
from hf_linear_attn.training.lra.curve import write_curve
from hf_linear_attn.training.lra.data import CHANCE, max_length, prepare_task
from hf_linear_attn.training.lra.listops import check_possible
from hf_linear_attn.training.lra.model_setup import (
    build_lra_config,
    build_lra_model,
)
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.protocol import differences
from hf_linear_attn.training.lra.results import LraResults, show_results
from hf_linear_attn.training.lra.schedules import check_schedule
from hf_linear_attn.training.lra.tasks import TASKS, find_folder
from hf_linear_attn.training.lra.trainer import LraTrainer
from hf_linear_attn.training.model_setup import attentions_for
from hf_linear_attn.training.report import commands_to_go_on
from hf_linear_attn.training.run import Run
from hf_linear_attn.training.run_checks import check_training_arguments, longer_run
from hf_linear_attn.training.run_folder import RunFolder
from hf_linear_attn.training.trainer import RecipeTrainer


class LraRun(Run):
    """Training and testing on one task.

    Args:
        args: with a single task.
        program: path of the recipe, for the commands to run next.
        configs: folder of its configurations, which say what is published.
    """

    def __init__(self, args: LraRunArguments, program: str, configs: Path) -> None:
        super().__init__(args)
        self.configs = configs
        self.args = args
        self.program = program
        self.task = TASKS[args.lra.task]
        self.preset = PRESETS[args.lra.preset]

    def check(self) -> None:
        """Arguments, whether data are there or can be drawn, and the model's config."""
        check_training_arguments(self.training, predicts=True)
        _check_best_counts(self)
        lra, generators = self.args.lra, self.args.generators
        steps = self.training.max_steps
        if steps > 0:
            check_schedule(lra.lr_schedule, self.training.get_warmup_steps(steps), steps)
        if lra.is_drawn(self.task.name):
            if self.task.name == "listops":
                check_possible(generators.listops, sum(generators.listops_counts.values()))
        elif lra.data_dir is None:
            raise ValueError(
                f"task {self.task.name} needs data_dir, a folder with {self.task.files}: its "
                "examples cannot be drawn"
            )
        else:
            find_folder(self.task, lra.data_dir)
        length = max_length(lra, self.task)
        self.config = build_lra_config(self.args.model, self.preset, self.task, length)

    def prepare(self, folder: RunFolder) -> dict[str, str]:
        """The task's examples."""
        self.data = prepare_task(self.task, self.args.lra, self.args.generators)
        return self.data.fingerprint

    def describe(self) -> list[str]:
        """Task, preset, and what was counted."""
        title = f"{self.task.title}, preset {self.preset.name} ({self.preset.title})"
        return [
            title,
            *self.data.describe(),
            f"chance level, {CHANCE}: {self.data.chance:.2%}",
        ]

    def build_model(self) -> PreTrainedModel:
        """New or saved, under the preset's head."""
        shared = shares_weights(self.training)
        return build_lra_model(self.args.model, self.config, shared=shared)

    def build_trainer(
        self, model: PreTrainedModel, callbacks: Sequence[TrainerCallback], folder: RunFolder
    ) -> RecipeTrainer:
        """A trainer that evaluates before training, once."""
        self.training.eval_on_start = folder.checkpoint is None
        classifier = cast(LraForSequenceClassification, model)
        schedule = self.args.lra.lr_schedule
        return LraTrainer(classifier, self.training, self.data, schedule, callbacks)

    def measure(self, trainer: RecipeTrainer, trained: TrainOutput) -> dict[str, Any]:
        """Test the best checkpoint, which is loaded by now, once."""
        after = trainer.final_evaluation()
        test = cast(Any, self.data.splits["test"].dataset)
        tested = trainer.evaluate(test, metric_key_prefix="test")
        self.tokens_per_second = trained.metrics.get("train_tokens_per_second")
        self.results = self._gather(trainer, trained, after, tested)
        trainer.save_metrics("test", {**tested, **self.results.stored()})
        return after

    def finish(self, trainer: RecipeTrainer, console: Console) -> None:
        """Card and curve; table and commands."""
        card = lra_card(
            cast(LraForSequenceClassification, trainer.trained_model),
            self.training,
            self.data,
            self.results,
            schedule=self.args.lra.lr_schedule,
            tokens_per_second=self.tokens_per_second,
            started_from=self.args.model.model_name_or_path,
        )
        write_model_card(self.output_dir, card)
        results = self.results
        history = trainer.state.log_history
        write_curve(history, self.output_dir, results.chance_level, results.test_accuracy)
        show_results(console, {self.task.name: results})
        saved = f"\nSaved in {self.output_dir}: model, card (README.md), accuracy curve"
        console.print(Text(saved), soft_wrap=True)
        for purpose, command in self.commands():
            console.print(Text(f"\n# {purpose}", style="dim"), soft_wrap=True)
            console.print(Text(command), soft_wrap=True)

    def commands(self) -> list[tuple[str, str]]:
        """Load it, go on, compare."""
        folder = str(self.output_dir)
        code = (
            "import hf_linear_attn; from transformers import AutoModelForSequenceClassification; "
            f"print(AutoModelForSequenceClassification.from_pretrained({folder!r}))"
        )
        # In double quotes it reads more easily, where a shell would replace nothing.
        plain = re.fullmatch(r"[\w./-]+", folder)
        loading = f'python -c "{code}"' if plain else shlex.join(["python", "-c", code])
        going_on = commands_to_go_on(
            launch_words(self.training, self.program),
            self.output_dir,
            longer_run(self.training),
            next(iter(attentions_for(self.args.model)), None),
        )
        return [("load the model in Python", loading), *going_on]

    def _gather(
        self,
        trainer: RecipeTrainer,
        trained: TrainOutput,
        after: dict[str, Any],
        tested: dict[str, Any],
    ) -> LraResults:
        longer = self.data.over_long
        return LraResults(
            task=self.task.name,
            preset=self.preset.name,
            attention=self.args.model.attention,
            test_accuracy=tested["test_accuracy"],
            best_validation_accuracy=after["eval_accuracy"],
            best_step=_best_step(trainer.state),
            chance_level=self.data.chance,
            test_examples=len(self.data.splits["test"]),
            test_examples_there=self.data.splits["test"].available,
            over_long_train=longer["train"],
            over_long_validation=longer["validation"],
            over_long_test=longer["test"],
            over_long_rule=self.data.rule,
            parameters=get_model_param_count(trainer.model),
            steps=trained.global_step,
            data=self.data.source,
            differences=differences(
                self.args, self.config, self.data, trained.global_step, self.configs
            ),
        )


def _check_best_counts(run: LraRun) -> None:
    args = run.training
    metric = (args.metric_for_best_model or "").removeprefix("eval_")
    if not args.load_best_model_at_end or metric != "accuracy" or args.greater_is_better is False:
        raise ValueError(
            "the checkpoint that is best on the validation split is the one tested: expected "
            "load_best_model_at_end true with metric_for_best_model accuracy (and "
            f"greater_is_better true), got {args.load_best_model_at_end}, "
            f"{args.metric_for_best_model} and {args.greater_is_better}"
        )
    evaluated, saved = (_cadence(args, kind) for kind in ("eval", "save"))
    if evaluated != saved or args.eval_strategy == "no":
        raise ValueError(
            "the checkpoint that is best on the validation split is the one tested, so that each "
            "validation needs its checkpoint: expected eval_strategy steps or epoch, the same "
            f"save_strategy, and save_steps as eval_steps; got validation {evaluated} and "
            f"checkpoints {saved}"
        )
    steps, every = args.max_steps, args.eval_steps or 0
    if args.eval_strategy == "steps" and 0 < steps < every:
        raise ValueError(
            f"eval_steps: got {every:g}, more than the {steps} steps of the run: no "
            "checkpoint would be validated; lower eval_steps and save_steps"
        )


def _cadence(args: TrainingArguments, kind: str) -> str:
    strategy, steps = getattr(args, f"{kind}_strategy"), getattr(args, f"{kind}_steps")
    return f"every {steps:g} steps" if strategy == "steps" else f"by {strategy.value}"


def _best_step(state: TrainerState) -> int:
    """The step of the checkpoint that is tested."""
    if state.best_model_checkpoint is None:
        raise ValueError(
            "no checkpoint was validated, so that none is the best; lower eval_steps, save_steps "
            "or eval_delay, with another output_dir"
        )
    return checkpoint_steps(Path(state.best_model_checkpoint))
