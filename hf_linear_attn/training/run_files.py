"""What a run writes about itself: its arguments, its data, checksums and its final state."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_linear_attn.training.atomic_files import remove_half_written, replaced
from hf_linear_attn.training.checkpoints import write_engine
from hf_linear_attn.training.checksums import write_checksums
from hf_linear_attn.training.engines import engine_of
from hf_linear_attn.training.fingerprint import (
    check_formula,
    read_fingerprint,
    write_fingerprint,
)
from hf_linear_attn.training.rotation import remove_old_checkpoints
from hf_linear_attn.training.run_file import write_run_file
from hf_linear_attn.training.run_folder import DATA_FILE, STATE_FILE, RunFolder


class RunFiles(TrainerCallback):
    """Marks the output folder as the run's when training begins, and seals its checkpoints.

    A sealed checkpoint names its engine and has checksums of all files of all processes.

    Nothing is written before: until then an argument may prove wrong, and the folder is free.

    Args:
        folder: of `open_run_folder`.
        arguments: of `resolve_arguments`.
        fingerprint: of the data.
    """

    def __init__(
        self, folder: RunFolder, arguments: dict[str, Any], fingerprint: dict[str, str]
    ) -> None:
        self.folder = folder
        self.arguments = arguments
        self.fingerprint = fingerprint
        self._kept: int | None = None
        self._is_written = False

    def write(self) -> None:
        """Write the run's arguments and the fingerprint of its data, once; what is equal stays."""
        if self._is_written:
            return  # whoever has changed them while the run went on keeps that
        # The data first: without a run file they belong to nobody.
        self.folder.path.mkdir(parents=True, exist_ok=True)
        remove_half_written(self.folder.path)
        write_fingerprint(self.folder.path / DATA_FILE, self.fingerprint)
        write_run_file(self.folder.path, self.arguments)
        self._is_written = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write, and let the cadence asked for win over the one that a checkpoint holds.

        Trainer would remove older checkpoints before the new one is sealed: killed between the two,
        the run would be left without a complete one. `on_save` removes them instead.
        """
        state.compute_steps(args, state.max_steps)
        self._kept, args.save_total_limit = args.save_total_limit, None
        if args.should_save:
            self.write()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write engine and checksums, when every process has written its part; remove the old."""
        if args.distributed_state is not None:
            args.distributed_state.wait_for_everyone()
        if args.should_save:
            checkpoint = self.folder.path / f"checkpoint-{state.global_step}"
            remove_half_written(checkpoint)
            write_engine(checkpoint, engine_of(args))
            write_checksums(checkpoint)
            self.remove_old(state, self._kept)

    def remove_old(self, state: TrainerState, limit: int | None) -> None:
        """Remove all but so many of the newest checkpoints; the last one saved and the best stay.

        Args:
            state: behind its last save.
            limit: None keeps all.
        """
        best = state.best_model_checkpoint
        remove_old_checkpoints(self.folder.path, limit, state.global_step, best)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Give the argument back."""
        args.save_total_limit = self._kept


def check_same_data(folder: RunFolder, fingerprint: dict[str, str]) -> None:
    """Raise ValueError if a run is to go on with other data than it has begun with."""
    file = folder.path / DATA_FILE
    if folder.checkpoint is None or not file.is_file():
        return
    try:
        before = read_fingerprint(file)
        check_formula(file, before, fingerprint)
    except ValueError as error:
        raise ValueError(
            f"{error}; delete it to go on without comparing the data, nothing was changed"
        ) from error
    names = {**before, **fingerprint}
    changed = [name for name in names if before.get(name) != fingerprint.get(name)]
    if changed:
        raise ValueError(
            f"the {' and '.join(changed)} examples are not those that the run in {folder.path} has "
            f"begun with: the text behind them was changed, {DATA_FILE} was, or the cache of "
            "`datasets` is damaged; bring the old text back, delete the cache, or choose another "
            "output_dir (nothing was changed)"
        )


def save_final_state(folder: Path, state: TrainerState) -> None:
    """Write Trainer's state into the output folder, which marks the run as finished.

    Args:
        folder: exists.
        state: after training.
    """
    with replaced(folder / STATE_FILE) as temporary:
        state.save_to_json(str(temporary))
