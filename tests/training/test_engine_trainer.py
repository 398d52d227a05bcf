"""Stopped runs log, save and end as uninterrupted ones: at any step, and by SIGTERM."""

import gc
import multiprocessing
import os
import shutil
import signal
import time
import weakref
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback, TrainerState

from hf_linear_attn.training.preemption import EXIT_CODE, StopOnSigterm
from hf_linear_attn.training.run_files import RunFiles
from hf_linear_attn.training.run_folder import RunFolder
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.training.tiny_run import make_trainer, rows


class NoRoomError(OSError):
    pass


CADENCE = {"save_strategy": "steps", "save_steps": 4, "logging_steps": 3, "dropout": 0.1}


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64)


def losses(trainer):
    return [(e["step"], e["loss"]) for e in trainer.state.log_history if "loss" in e]


def weights(trainer):
    return [p.detach().clone() for p in trainer.model.parameters()]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_b36_a_resume_between_two_logs_logs_the_same(tmp_path, tokenizer, accumulation):
    args = {**CADENCE, "max_steps": 8, "gradient_accumulation_steps": accumulation}
    whole = make_trainer(tmp_path, tokenizer, rows(24), **args)
    whole.train()
    again = make_trainer(tmp_path, tokenizer, rows(24), **args)
    again.train(str(tmp_path / "checkpoint-4"))
    assert [step for step, _ in losses(whole)] == [3, 6]
    assert losses(again) == losses(whole)
    assert all(map(torch.equal, weights(again), weights(whole)))


class TellsToStop(TrainerCallback):
    """Sends SIGTERM in the given step, twice, as launcher and scheduler do."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)


def stoppable(folder, tokenizer, step=None, **args):
    trainer = make_trainer(folder, tokenizer, rows(24), **{**CADENCE, "max_steps": 8, **args})
    trainer.add_callback(RunFiles(RunFolder(folder), {}, {}))
    trainer.add_callback(StopOnSigterm())
    if step is not None:
        trainer.add_callback(TellsToStop(step))
    return trainer


@pytest.mark.parametrize(
    "strategy",
    [
        "steps",
        pytest.param("epoch", marks=pytest.mark.slow),
        pytest.param("no", marks=pytest.mark.slow),
    ],
)
def test_sigterm_saves_a_complete_checkpoint_and_leaves(tmp_path, tokenizer, capsys, strategy):
    cadence = {"save_strategy": strategy, "eval_strategy": "epoch"}
    whole = stoppable(tmp_path / "whole", tokenizer, **cadence)
    whole.train()
    before = signal.getsignal(signal.SIGTERM)
    trainer = stoppable(tmp_path / "stopped", tokenizer, step=5, **cadence)
    with pytest.raises(SystemExit) as stop:
        trainer.train()
    assert stop.value.code == EXIT_CODE == 143
    assert "stopped by SIGTERM after step 5" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
    assert (tmp_path / "stopped" / "checkpoint-5" / "checksums.json").is_file()
    again = stoppable(tmp_path / "stopped", tokenizer, **cadence)
    again.train(str(tmp_path / "stopped" / "checkpoint-5"))
    assert losses(again) == losses(whole)
    kept = [e["step"] for e in again.state.log_history if "eval_loss" in e]
    assert kept == [e["step"] for e in whole.state.log_history if "eval_loss" in e]
    assert all(map(torch.equal, weights(again), weights(whole)))


def test_sigterm_in_the_last_step_lets_the_training_end(tmp_path, tokenizer):
    trainer = stoppable(tmp_path, tokenizer, step=8)
    trainer.train()
    assert trainer.state.global_step == 8


def test_an_older_checkpoint_goes_only_when_the_newer_one_is_sealed(tmp_path, tokenizer):
    seen = {}

    class Looks(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            seen[state.global_step] = sorted(path.name for path in Path(tmp_path).glob("check*"))

    trainer = make_trainer(tmp_path, tokenizer, rows(24), **{
        **CADENCE, "max_steps": 8, "save_total_limit": 1,
    })  # fmt: skip
    trainer.add_callback(Looks())
    trainer.add_callback(RunFiles(RunFolder(tmp_path), {}, {}))
    trainer.train()
    assert seen == {4: ["checkpoint-4"], 8: ["checkpoint-4", "checkpoint-8"]}
    assert [path.name for path in tmp_path.glob("check*")] == ["checkpoint-8"]
    assert trainer.args.save_total_limit == 1


def test_the_best_weights_are_taken_over_after_the_last_save(tmp_path, tokenizer):
    args = {
        **CADENCE, "max_steps": 8, "eval_strategy": "steps", "eval_steps": 4,
        # By a measure by which an earlier step is the best.
        "load_best_model_at_end": True, "greater_is_better": True,
    }  # fmt: skip
    whole = make_trainer(tmp_path / "run", tokenizer, rows(24), **args)
    whole.train()
    assert whole.state.best_global_step == 4
    again = make_trainer(tmp_path / "run", tokenizer, rows(24), **args)
    again.train(str(tmp_path / "run" / "checkpoint-8"))
    assert all(map(torch.equal, weights(again), weights(whole)))


def test_a_resumed_run_ends_with_the_training_loss_of_an_uninterrupted_one(tmp_path, tokenizer):
    args = {**CADENCE, "max_steps": 5}
    trainer = make_trainer(tmp_path, tokenizer, rows(24), **args)
    whole = trainer.train()
    names = ("step", "epoch", "train_loss", "total_flos")
    summed = {name: trainer.state.log_history[-1][name] for name in names}
    # At 5 training is complete: the checkpoint is taken over.
    for step in (4, 5):
        again = make_trainer(tmp_path, tokenizer, rows(24), **args)
        output = again.train(str(tmp_path / f"checkpoint-{step}"))
        assert output.training_loss == whole.training_loss
        assert output.metrics["train_loss"] == whole.metrics["train_loss"]
        # It is logged once, and last of all.
        logged = [e for e in again.state.log_history if "train_loss" in e]
        assert logged == again.state.log_history[-1:]
        assert {name: logged[0][name] for name in summed} == summed


def test_a_checkpoint_counts_as_whole_only_with_what_was_summed_since_the_last_log(
    tmp_path, tokenizer, monkeypatch
):
    trainer = make_trainer(tmp_path, tokenizer, rows(24), **{**CADENCE, "max_steps": 4})

    def cut_off(self, path):
        raise NoRoomError

    monkeypatch.setattr(TrainerState, "save_to_json", cut_off)
    with pytest.raises(NoRoomError):
        trainer.train()
    assert (tmp_path / "checkpoint-4" / "running_loss_0.json").is_file()


def test_the_model_of_a_run_takes_the_place_of_an_earlier_one_as_a_whole(
    tmp_path, tokenizer, monkeypatch
):
    trainer = make_trainer(tmp_path, tokenizer, rows(24), max_steps=1)
    trainer.save_model()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= before.keys()
    trainer.train()

    def cut_off(*_):
        raise NoRoomError

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", cut_off)  # of the arguments, which come last
        with pytest.raises(NoRoomError):
            trainer.save_model()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    trainer.save_model()
    assert (tmp_path / "model.safetensors").read_bytes() != before["model.safetensors"]
    assert {path.name for path in tmp_path.iterdir()} == before.keys()


BEST = {
    **CADENCE, "max_steps": 3, "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1,
    "load_best_model_at_end": True, "greater_is_better": True,
}  # fmt: skip


def test_the_best_checkpoint_is_found_in_a_folder_that_was_moved(tmp_path, tokenizer):
    whole = make_trainer(tmp_path / "run", tokenizer, rows(24), **BEST)
    whole.train()
    assert whole.state.best_global_step == 1
    (tmp_path / "run").rename(tmp_path / "moved")
    again = make_trainer(tmp_path / "moved", tokenizer, rows(24), **BEST)
    again.train(str(tmp_path / "moved" / "checkpoint-3"))
    assert again.state.best_model_checkpoint == str(tmp_path / "moved" / "checkpoint-1")
    assert all(map(torch.equal, weights(again), weights(whole)))


def test_the_best_checkpoint_is_found_where_no_later_one_is_saved(tmp_path, tokenizer):
    args = {**BEST, "save_strategy": "best"}
    whole = make_trainer(tmp_path / "run", tokenizer, rows(24), **args)
    whole.train()
    assert [path.name for path in (tmp_path / "run").glob("check*")] == ["checkpoint-1"]
    (tmp_path / "run").rename(tmp_path / "moved")
    again = make_trainer(tmp_path / "moved", tokenizer, rows(24), **args)
    again.train(str(tmp_path / "moved" / "checkpoint-1"))
    assert all(map(torch.equal, weights(again), weights(whole)))


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_best_checkpoint_that_is_missing_is_named(tmp_path, tokenizer, step):
    make_trainer(tmp_path, tokenizer, rows(24), **BEST).train()
    shutil.rmtree(tmp_path / "checkpoint-1")
    again = make_trainer(tmp_path, tokenizer, rows(24), **BEST)
    with pytest.raises(ValueError, match="checkpoint-1, the best checkpoint so far, is missing"):
        again.train(str(tmp_path / f"checkpoint-{step}"))
    # Nobody asks for it.
    free = make_trainer(tmp_path, tokenizer, **{**BEST, "load_best_model_at_end": False})
    free.train(str(tmp_path / f"checkpoint-{step}"))


class Damages(TrainerCallback):
    """Flips a bit of the best weights, or takes them away, behind the last save."""

    def __init__(self, checkpoint, fault):
        self.checkpoint, self.fault = checkpoint, fault

    def on_save(self, args, state, control, **kwargs):
        if state.global_step < args.max_steps:
            return
        if self.fault == "missing":
            shutil.rmtree(self.checkpoint)
            return
        content = bytearray((self.checkpoint / "model.safetensors").read_bytes())
        content[-9] ^= 1
        (self.checkpoint / "model.safetensors").write_bytes(content)


@pytest.mark.parametrize("fault", ["missing", "not what was saved"])
def test_best_weights_that_were_damaged_meanwhile_are_not_loaded(tmp_path, tokenizer, fault):
    trainer = make_trainer(tmp_path, tokenizer, rows(24), **BEST)
    trainer.add_callback(RunFiles(RunFolder(tmp_path), {}, {}))
    trainer.add_callback(Damages(tmp_path / "checkpoint-1", fault))
    message = (
        rf"the training is done, and .*checkpoint-1\b.* is {fault}.*load_best_model_at_end false"
    )
    with pytest.raises(ValueError, match=message):
        trainer.train()
    assert trainer.state.global_step == BEST["max_steps"]


def test_a_trainer_is_gone_with_its_last_name(tmp_path, tokenizer):
    """In a circle it would live on, and keep the workers of its loaders waiting."""
    trainer = make_trainer(tmp_path, tokenizer, rows(8), max_steps=2)
    trainer.train()
    gone = weakref.ref(trainer)
    gc.disable()
    try:
        del trainer
        assert gone() is None
    finally:
        gc.enable()


def wait(ready):
    ready.set()
    time.sleep(60)


def test_a_loaders_worker_ends_at_sigterm(tmp_path, tokenizer):
    """It has the handler of the process it was forked from, and no checkpoint to save."""

    class Worker(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            fork = multiprocessing.get_context("fork")
            ready = fork.Event()
            child = fork.Process(target=wait, args=(ready,))
            child.start()
            # At the fork itself a signal is lost.
            assert ready.wait(20)
            child.terminate()
            child.join(20)
            self.code = child.exitcode
            child.kill()

    worker = Worker()
    trainer = make_trainer(tmp_path, tokenizer, rows(8), max_steps=1)
    trainer.add_callback(StopOnSigterm())
    trainer.add_callback(worker)
    trainer.train()
    assert worker.code == -signal.SIGTERM
