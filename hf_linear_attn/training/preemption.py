"""SIGTERM in training: finish the step, save a checkpoint, leave; the same command goes on."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

EXIT_CODE = 128 + signal.SIGTERM  # what a shell reports of a process that SIGTERM has ended


class StopOnSigterm(TrainerCallback):
    """Turns SIGTERM, as schedulers send it before they take a machine away, into a checkpoint.

    All processes agree after each step whether one of them has been asked to stop. Repeated signals
    change nothing: launcher and scheduler both send one. It stands behind the callback that seals
    checkpoints. Outside training SIGTERM ends the process as always.
    """

    def __init__(self) -> None:
        self.asked = False
        self._stops = False
        self._before: Any = None
        self._process = os.getpid()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Listen."""
        if threading.current_thread() is threading.main_thread():
            self._process = os.getpid()
            self._before = signal.signal(signal.SIGTERM, self._note)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a checkpoint if any process was asked to stop; the last step needs none."""
        if self._anyone_was_asked(args) and state.global_step < state.max_steps:
            control.should_save = True
            self._stops = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave when the checkpoint is complete: by SystemExit, with a line on the main process.

        Not by `should_training_stop`, which would end the epoch, evaluate and finish the run.
        """
        if not self._stops:
            return
        self._listen_no_longer()
        if args.distributed_state is not None:
            args.distributed_state.wait_for_everyone()  # the main process seals the checkpoint
            args.distributed_state.destroy_process_group()
        if state.is_world_process_zero:
            sys.stderr.write(
                f"stopped by SIGTERM after step {state.global_step:,}, whose checkpoint is saved; "
                "the same command goes on from it\n"
            )
        raise SystemExit(EXIT_CODE)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Listen no longer."""
        self._listen_no_longer()

    def _listen_no_longer(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A loader's worker has this from its parent: it has nothing to save.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.asked = True

    def _anyone_was_asked(self, args: TrainingArguments) -> bool:
        if args.world_size == 1:
            return self.asked
        asked = torch.tensor(int(self.asked), device=args.device)
        torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
        return bool(asked)
