"""What a Trainer needs so that every engine saves a whole model and ends like a single process."""

from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel, Trainer, TrainerState
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.trainer_utils import TrainOutput

from hf_linear_attn.training.atomic_files import replaced_files
from hf_linear_attn.training.best_checkpoint import BestCheckpoint, best_beside, check_best
from hf_linear_attn.training.engines import engine_of
from hf_linear_attn.training.running_loss import RunningLoss
from hf_linear_attn.training.sealed_model import unseal_model


class EngineTrainer(Trainer):
    """Transformers' Trainer, made safe for DDP, ZeRO and FSDP2.

    `save_model` writes a complete `model.safetensors` under each of them, into checkpoints too, and
    a run that goes on from a checkpoint logs what it would have logged without the break.

    Args:
        args: as `Trainer`.
        kwargs: as `Trainer`.

    Raises:
        ValueError: the engine that was asked for is not the one that runs.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._whole_was_taken = False
        self._running_loss, self._best = RunningLoss(self), BestCheckpoint()
        # First of all: what they read is there for the others.
        self.callback_handler.callbacks[:0] = [self._running_loss, self._best]
        asked = engine_of(self.args)
        if asked.is_sharded != self.is_sharded:
            raise ValueError(
                f"{asked.name} was asked for and does not run; accelerate would train by "
                f"{self.accelerator.distributed_type.value} instead"
            )

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> TrainOutput:
        """Trainer's training, whose logs of a resumed run are those of an uninterrupted one.

        Raises:
            ValueError: the best checkpoint of the resumed run is asked for and missing.
        """
        named = isinstance(resume_from_checkpoint, str)
        resumed = Path(resume_from_checkpoint) if named else None
        self._running_loss.resumed_from, self._best.found = resumed, None
        if resumed is not None:
            state = TrainerState.load_from_json(f"{resumed}/trainer_state.json")
            self._best.found = best_beside(resumed, state, self.args)
        output = super().train(resume_from_checkpoint, *args, **kwargs)
        return output._replace(training_loss=output.metrics["train_loss"])

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Trainer's log; the training loss at the end is that of all steps of the run."""
        if "train_loss" in logs:
            logs["train_loss"] = self._running_loss.mean()
        super().log(logs, start_time)

    @property
    def is_sharded(self) -> bool:
        """Whether DeepSpeed or FSDP keeps a part of the training's state on each process."""
        return bool(self.is_deepspeed_enabled or self.is_fsdp_enabled)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save model, config and tokenizer; the weights are whole. All processes call this.

        With FSDP's sharded state dicts Trainer's method writes nothing, and does not say so.
        """
        if self._whole_was_taken:
            return  # it is the saved one; an upload asks for it once more
        if not self.is_fsdp_enabled:
            super().save_model(output_dir, _internal_call)
            return
        weights = self.accelerator.get_state_dict(self.model)
        self._save(output_dir, state_dict=cast(dict[str, Any], weights))
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _load_best_model(self) -> None:
        """Trainer's, which warns of what is missing, and loads whatever weights it finds."""
        check_best(Path(str(self.state.best_model_checkpoint)))
        super()._load_best_model()

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        self._running_loss.write()
        super()._save_checkpoint(model, trial)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Trainer's, which copies the checkpoint's model over that of the run."""
        if self.is_world_process_zero():
            unseal_model(Path(str(self.args.output_dir)))
        super()._push_from_checkpoint(checkpoint_folder)

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        """Trainer's; tied weights, of which the engines gather a copy a name, are written once.

        The model of the run takes the place of an earlier one when all of it is written.
        """
        if state_dict is not None:
            tied = getattr(self.model, "all_tied_weights_keys", {})
            state_dict = {name: w for name, w in state_dict.items() if name not in tied}
        folder = Path(output_dir or str(self.args.output_dir))
        if not self.args.should_save or folder != Path(str(self.args.output_dir)):
            super()._save(output_dir, state_dict)
            return
        # A checkpoint is sealed when it is complete; the model of the run is read as it stands.
        with replaced_files(folder, last="model") as complete:
            super()._save(str(complete), state_dict)
            unseal_model(folder)

    def take_whole_model(self) -> None:
        """After the last save: `model` becomes the saved one, whole on this process.

        A sharded model answers only when all processes ask; what is done on the main process alone
        needs this one. Nothing changes where the model is whole already. No training or evaluation
        by this trainer can follow.
        """
        if not self.is_sharded:
            return
        unset_hf_deepspeed_config()  # or ZeRO-3 would share this one out too
        model_class = _class_of(self.model)
        folder = str(self.args.output_dir)
        model: Any = model_class.from_pretrained(folder, dtype=torch.float32)
        self.model = model.to(self.args.device).eval()
        self._whole_was_taken = True

    def end(self) -> None:
        """Trainer's end; the next run in this process finds no engine of this one."""
        super().end()
        self.leave_engine()

    def leave_engine(self) -> None:
        """Let the models that are built from now on know nothing of this run's engine."""
        unset_hf_deepspeed_config()

    def take_over(self, checkpoint: str, state: TrainerState) -> TrainOutput:
        """Weights and history of a checkpoint whose training is complete.

        Args:
            checkpoint: a folder.
            state: the one in it.

        Raises:
            ValueError: its best checkpoint is asked for and missing.
        """
        state.best_model_checkpoint = best_beside(Path(checkpoint), state, self.args)
        self.state = state
        state.init_training_references(self, state.max_steps, state.num_train_epochs, None)
        if self.is_sharded:
            # The engine has to be there for the evaluation, and only it can read its checkpoint.
            self._prepare_for_training(state.max_steps, self.get_train_dataloader(), checkpoint)
        else:
            self._load_from_checkpoint(checkpoint)
        if self.args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._load_best_model()
        loss = self._running_loss.mean_at(Path(checkpoint))
        if loss is None:
            last = [entry["loss"] for entry in state.log_history if "loss" in entry][-1:]
            loss = last[0] if last else float("nan")
        metrics = {"total_flos": state.total_flos, "train_loss": loss}
        # As at the end of training; the mean is not that of this process, which has no steps.
        super().log(metrics)
        return TrainOutput(state.global_step, loss, metrics)


def _class_of(model: torch.nn.Module) -> type[PreTrainedModel]:
    """The model's own class; FSDP2 puts one of its own over it."""
    found = next(c for c in type(model).__mro__ if c.__module__.startswith("hf_linear_attn.models"))
    assert issubclass(found, PreTrainedModel)
    return found
