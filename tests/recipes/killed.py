"""A run of the masked-LM recipe that kills itself at a given moment."""

import os
import signal
from pathlib import Path

import safetensors.torch
import torch
import transformers.modeling_utils
from transformers import Trainer, TrainerState

from hf_linear_attn.training import language_model_run, run_files
from tests.recipes.mlm_recipe import MLM


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def train_until(argv, moment, where):
    """Run the recipe and end it by SIGKILL, at what `MOMENTS` says; returns if it never comes."""
    MOMENTS[moment](where)
    MLM.main(argv)


def at_step(where):
    """In the forward pass of the given step of this process."""
    _at_step(int(where), die)


def sigterm_at_step(where):
    """The same, with the signal that a scheduler sends."""
    _at_step(int(where), lambda: os.kill(os.getpid(), signal.SIGTERM))


def _at_step(step, end):
    original, calls = Trainer.training_step, []

    def training_step(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == step:
            end()
        return original(self, *args, **kwargs)

    Trainer.training_step = training_step


def in_torch_save(where):
    """When half of a file of `torch.save` is written."""
    torch.save = torn(torch.save, where, 1)


def in_weights(where):
    """When half of the weights are written."""
    original = torn(safetensors.torch.save_file, where, 1)
    transformers.modeling_utils.safe_save_file = original


def in_state(where):
    """When half of Trainer's state is written."""
    TrainerState.save_to_json = torn(TrainerState.save_to_json, where, 1)


def torn(original, where, at):
    """A function that writes a file, of which only the first half reaches the one at `where`."""

    def write(*args, **kwargs):
        original(*args, **kwargs)
        file = Path(args[at])
        if where in str(file):
            content = file.read_bytes()
            file.write_bytes(content[: len(content) // 2])
            die()

    return write


def before_checksums(where):
    """When every file of a checkpoint is there but the checksums."""
    original = run_files.write_checksums

    def write(folder):
        if str(folder).endswith(where):
            die()
        original(folder)

    run_files.write_checksums = write


def in_removal(where):
    """When the first file of an old checkpoint is gone."""
    original = os.unlink

    def unlink(path, *args, **kwargs):
        original(path, *args, **kwargs)
        if str(path).endswith(where):
            die()

    os.unlink = unlink


def in_card(where):
    """When the model card is to be written, after the last save."""
    language_model_run.write_model_card = lambda *_: die()


MOMENTS = {
    "at_step": at_step,
    "sigterm_at_step": sigterm_at_step,
    "in_torch_save": in_torch_save,
    "in_weights": in_weights,
    "in_state": in_state,
    "before_checksums": before_checksums,
    "in_removal": in_removal,
    "in_card": in_card,
}
