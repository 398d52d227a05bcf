"""The life of a run, the same for every recipe: from its arguments to its report.

A recipe says what its run is made of (`Run`), `carry_out` leads it: everything that can be known is
checked before anything is read, everything is read before anything is written, and the same command
again goes on where the run stopped.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import PreTrainedModel, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.integrations.hub_access import check_may_write
from hf_linear_attn.integrations.hub_errors import hub_errors
from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.cache_damage import damaged_cache_is_named
from hf_linear_attn.training.checkpoints import check_same_engine
from hf_linear_attn.training.engines import built_whole, engine_of
from hf_linear_attn.training.preemption import StopOnSigterm
from hf_linear_attn.training.run_checks import (
    check_finite,
    check_has_batches,
    check_has_trained,
    check_training_arguments,
)
from hf_linear_attn.training.run_files import (
    RunFiles,
    check_same_data,
    save_final_state,
)
from hf_linear_attn.training.run_folder import (
    STATE_FILE,
    RunFolder,
    open_run_folder,
    resolve_arguments,
)
from hf_linear_attn.training.saved_files import DamagedFileError, check_saved_model
from hf_linear_attn.training.sealed_model import seal_model
from hf_linear_attn.training.trainer import RecipeTrainer


class Run(ABC):
    """What one training run is made of.

    Its methods are called by `carry_out` in the order in which they stand here; what one prepares,
    the later ones find on the object.

    Args:
        arguments: all arguments of the run, one dataclass a kind, `TrainingArguments` last.
    """

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.arguments = tuple(arguments)
        self.training: TrainingArguments = self.arguments[-1]
        self.output_dir = Path(str(self.training.output_dir))

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError for what is wrong without a look at the data."""
        check_training_arguments(self.training)

    @abstractmethod
    def prepare(self, folder: RunFolder) -> dict[str, str]:
        """Read the data and the tokenizer; on each node the main process comes first.

        Args:
            folder: where the run lives; one that goes on keeps the tokenizer of its checkpoint.

        Returns:
            What the data are recognised by when the run goes on: a digest a split.
        """

    @abstractmethod
    def describe(self) -> list[str]:
        """What has been prepared, a line each."""

    @abstractmethod
    def build_model(self) -> PreTrainedModel:
        """The model to train; new weights come from torch's current seed."""

    @abstractmethod
    def build_trainer(
        self, model: PreTrainedModel, callbacks: Sequence[TrainerCallback], folder: RunFolder
    ) -> RecipeTrainer:
        """The trainer, with these callbacks after its own.

        Args:
            model: of `build_model`.
            callbacks: what a run needs to be found again.
            folder: with a checkpoint where the run goes on: its first evaluation is done then.
        """

    @abstractmethod
    def measure(self, trainer: RecipeTrainer, trained: TrainOutput) -> dict[str, Any]:
        """Evaluate the trained model on all processes and keep what was measured.

        Returns:
            The final evaluation, with `eval_loss`.
        """

    @abstractmethod
    def finish(self, trainer: RecipeTrainer, console: Console) -> None:
        """Write card and plots, print the table; on the main process, the model is saved by now."""

    @abstractmethod
    def commands(self) -> list[tuple[str, str]]:
        """What to run next: what it is for, and the command."""


def carry_out(run: Run, console: Console | None = None, *, last: bool = True) -> None:
    """Lead a run from its arguments to its report.

    A folder that holds the run finished is left as it is. On several processes each calls this.

    Args:
        run: not yet begun.
        console: what is printed to; None is stdout, on the main process.
        last: no run follows in these processes, so they part.

    Raises:
        ValueError: a user's mistake, before anything is written; or training that has diverged,
            when everything is written.
    """
    console = console or Console(quiet=run.training.process_index > 0)
    run.check()
    resolved = resolve_arguments(*run.arguments)
    folder = open_run_folder(run.output_dir, resolved)
    if folder.finished:
        _say_finished(run, folder, console)
        return
    if folder.checkpoint is not None:
        check_same_engine(folder.checkpoint, engine_of(run.training))
    for path in folder.unfinished:
        console.print(f"Passing over {path}: its saving was interrupted", soft_wrap=True)
    if folder.begins_anew:
        told = f"Beginning anew in {folder.path}: it holds no complete checkpoint"
        console.print(told, soft_wrap=True)
    first = run.training.main_process_first(desc="data preparation")
    with first, damaged_cache_is_named():
        fingerprint = run.prepare(folder)
    check_same_data(folder, fingerprint)
    console.print(*run.describe(), sep="\n", soft_wrap=True, markup=False, highlight=False)
    set_seed(run.training.seed)
    run_files = RunFiles(folder, resolved, fingerprint)
    with built_whole(run.training):
        model = run.build_model()
    trainer = _build_trainer(run, model, [run_files, StopOnSigterm()], folder)
    trainer.use_peak(_peak_tflops(run))
    check_has_batches(trainer)
    if folder.checkpoint is not None:
        console.print(f"Going on from {folder.checkpoint}", soft_wrap=True)
    results = _train(run, trainer, folder)
    if trainer.is_world_process_zero():
        # A complete checkpoint is taken over without any training, whose callbacks would do this.
        run_files.write()
        run_files.remove_old(trainer.state, run.training.save_total_limit)
        trainer.take_whole_model()
        run.finish(trainer, console)
    _publish(run, trainer)
    if last:
        trainer.end()
    else:
        trainer.leave_engine()
    check_finite(results["eval_loss"])


def _build_trainer(
    run: Run, model: PreTrainedModel, callbacks: Sequence[TrainerCallback], folder: RunFolder
) -> RecipeTrainer:
    """The trainer; a run that is shared asks for its place, and whether it may write there, now."""
    if not run.training.push_to_hub:
        return run.build_trainer(model, callbacks, folder)
    name = run.training.hub_model_id or run.output_dir.absolute().name
    if run.training.process_index == 0:
        check_may_write(name, run.training.hub_token)
    with hub_errors(name, uploading=True):
        return run.build_trainer(model, callbacks, folder)


def _peak_tflops(run: Run) -> float | None:
    return next((a.peak_tflops for a in run.arguments if isinstance(a, ModelArguments)), None)


def _say_finished(run: Run, folder: RunFolder, console: Console) -> None:
    console.print(f"{folder.path} holds this run, finished; nothing was changed.", soft_wrap=True)
    try:
        check_saved_model(folder.path)
    except DamagedFileError as error:
        told = f"But {error}: delete {folder.path / STATE_FILE}, and this command saves it again."
        console.print(told, soft_wrap=True, markup=False)
        return
    console.print("To go on:")
    for purpose, command in run.commands():
        console.print(f"\n# {purpose}\n{command}", soft_wrap=True, markup=False)


def _train(run: Run, trainer: RecipeTrainer, folder: RunFolder) -> dict[str, Any]:
    """Train from the beginning or from the checkpoint; measure, and save the model."""
    trained = trainer.train(None if folder.checkpoint is None else str(folder.checkpoint))
    check_has_trained(trainer)
    results = run.measure(trainer, trained)
    trainer.save_model(_internal_call=True)  # uploaded later, with its card
    trainer.save_metrics("train", trained.metrics)
    trainer.save_metrics("eval", results)
    return results


def _publish(run: Run, trainer: RecipeTrainer) -> None:
    """Upload what is to be shared, then mark the run as finished: last of all."""
    trainer.accelerator.wait_for_everyone()
    if not trainer.is_world_process_zero():
        return
    seal_model(run.output_dir)
    if run.training.push_to_hub:
        try:
            with hub_errors(trainer.hub_model_id or "", uploading=True):
                trainer.push_to_hub()
        except ValueError as error:
            raise ValueError(
                f"{str(error).rstrip('.')}. The trained model is in {run.output_dir}; the same "
                "command again uploads it, without training."
            ) from error
        finally:
            seal_model(run.output_dir)  # the upload has saved the model once more
    save_final_state(run.output_dir, trainer.state)
