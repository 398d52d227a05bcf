"""The masked-LM recipe, stopped and started again: cadence, killed saves, corrected values."""

import json
import shutil
from pathlib import Path

import pytest

from hf_linear_attn.training import run, text_and_tokenizer
from tests.recipes.mlm_recipe import MLM
from tests.recipes.test_mlm import fails, history, interrupt, merges, same, snapshot, weights

__all__ = ["fails"]  # a fixture
pytestmark = pytest.mark.slow


def steps_with(folder: str, key: str) -> list[int]:
    return [entry["step"] for entry in history(folder) if key in entry]


def test_another_cadence_takes_effect_when_a_run_goes_on(settings):
    command = [*settings, "--output_dir", "run", "--config_overrides", "hidden_dropout_prob=0.1"]
    MLM.main(command)
    whole = weights("run")
    interrupt(Path("run"), "checkpoint-3")
    MLM.main([*command, "--logging_steps", "3", "--eval_steps", "5", "--save_steps", "4"])
    assert steps_with("run", "loss") == [1, 2, 3, 6]
    # The last evaluation is the one after training.
    assert steps_with("run", "eval_loss") == [0, 2, 5, 6]
    assert sorted(path.name for path in Path("run").glob("checkpoint-*")) == [
        "checkpoint-3",
        "checkpoint-4",
        "checkpoint-6",
    ]
    assert same(weights("run"), whole)


@pytest.mark.parametrize(
    "changed",
    [
        ["--eval_strategy", "no", "--per_device_eval_batch_size", "3"],
        ["--eval_steps", "1", "--eval_delay", "4", "--dataloader_num_workers", "1"],
        pytest.param(
            ["--dataloader_persistent_workers", "--dataloader_num_workers", "1"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda changed: changed[0],
)
def test_what_may_change_changes_not_one_bit_of_the_weights(settings, changed):
    command = [*settings, "--output_dir", "run", "--config_overrides", "hidden_dropout_prob=0.1"]
    command += ["--max_train_examples", "8"]  # two steps an epoch
    MLM.main(command)
    whole = weights("run")
    interrupt(Path("run"), "checkpoint-3")
    MLM.main([*command, *changed])
    assert same(weights("run"), whole)


@pytest.mark.parametrize("left", ["model", "all but the checksums"])
def test_a_save_that_was_killed_is_passed_over_and_written_again(settings, capsys, left):
    MLM.main([*settings, "--output_dir", "whole"])
    shutil.copytree("whole", "again")
    interrupt(Path("again"), "checkpoint-3")
    shutil.copytree("whole/checkpoint-6", "again/checkpoint-6")
    for file in Path("again/checkpoint-6").iterdir():
        if file.name == "checksums.json" or (left == "model" and "model" not in file.name):
            file.unlink()
    capsys.readouterr()
    MLM.main([*settings, "--output_dir", "again"])
    out = capsys.readouterr().out
    assert "Passing over again/checkpoint-6: its saving was interrupted" in out
    assert "Going on from again/checkpoint-3" in out
    assert "Tokenizer: that of again/checkpoint-3" in out
    assert "anew" not in out
    assert same(weights("again"), weights("whole"))
    assert same(weights("again/checkpoint-6"), weights("whole"))
    sums = json.loads(Path("again/checkpoint-6/checksums.json").read_text())
    assert {"model.safetensors", "optimizer.pt", "trainer_state.json"} <= set(sums)


def test_a_killed_first_save_begins_again(settings, capsys):
    MLM.main([*settings, "--output_dir", "whole"])
    shutil.copytree("whole", "again")
    interrupt(Path("again"), "checkpoint-3")
    Path("again/checkpoint-3/checksums.json").unlink()
    Path("again/checkpoint-3/trainer_state.json").unlink()
    capsys.readouterr()
    MLM.main([*settings, "--output_dir", "again"])
    out = capsys.readouterr().out
    assert "Beginning anew in again: it holds no complete checkpoint" in out
    assert "Tokenizer: trained on the training text" in out
    assert same(weights("again"), weights("whole"))
    assert steps_with("again", "eval_loss") == [0, 2, 4, 6]


def test_a_longer_run_does_not_replace_what_a_person_has_made_of_the_model(settings, fails):
    command = [*settings, "--output_dir", "run"]
    longer = [*command, "--max_steps", "7"]
    MLM.main(command)
    file = Path("run/model.safetensors")
    # Other metadata: weights that can be loaded as well as before.
    file.write_bytes(file.read_bytes().replace(b'"format":"pt"', b'"format":"PT"', 1))
    before = snapshot(Path("run"))
    assert f"{file} differs from what the finished run has saved" in fails(longer)
    assert snapshot(Path("run")) == before
    file.rename("mine")
    MLM.main(longer)
    assert file.is_file()


def test_other_training_text_is_refused_when_a_run_goes_on(settings, fails):
    command = [*settings, "--output_dir", "run"]
    MLM.main(command)
    interrupt(Path("run"), "checkpoint-3")
    text = Path("text.txt").read_text()
    Path("text.txt").write_text(text.replace("seven", "eleven"))
    before = snapshot(Path("run"))
    assert "begun with: the text behind them was changed" in fails(command)
    assert snapshot(Path("run")) == before
    Path("text.txt").write_text(text)
    MLM.main(command)
    assert merges("run")


def test_a_damaged_data_file_is_named(settings, fails):
    command = [*settings, "--output_dir", "run"]
    MLM.main(command)
    interrupt(Path("run"), "checkpoint-3")
    Path("run/data.json").write_text("")
    assert "run/data.json cannot be read; delete it" in fails(command)
    Path("run/data.json").unlink()
    MLM.main(command)


LATE_MISTAKES = [
    pytest.param(["--optim", "adamw_bnb_8bit"], id="optimizer-package"),
    pytest.param(
        ["--lr_scheduler_type", "polynomial", "--lr_scheduler_kwargs", '{"lr_end": 9.0}'],
        id="scheduler",
    ),
    pytest.param(["--label_smoothing_factor", "0.1"], id="trainer"),
    pytest.param(["--dataloader_drop_last", "--per_device_train_batch_size", "999"], id="no-batch"),
    pytest.param(["--dataloader_prefetch_factor", "2"], id="loader"),
]


@pytest.mark.parametrize("mistake", LATE_MISTAKES)
def test_a_mistake_leaves_the_folder_free_for_the_right_value(settings, fails, mistake):
    command = [*settings, "--output_dir", "run"]
    fails([*command, *mistake])
    assert not Path("run/run.yaml").exists()
    MLM.main(command)


def test_too_little_text_for_one_batch_is_refused_by_its_causes(settings, fails):
    extra = ["--dataloader_drop_last", "--per_device_train_batch_size", "999"]
    line = fails([*settings, "--output_dir", "run", *extra])
    assert "training examples give no batch of 999 with dataloader_drop_last True" in line


def test_a_run_that_diverged_is_written_and_is_no_success(settings, fails):
    extra = ["--learning_rate", "1e30", "--lr_scheduler_type", "constant"]
    line = fails([*settings, "--output_dir", "run", *extra])
    assert "the training has diverged: the final evaluation loss is" in line
    assert Path("run/README.md").is_file()
    assert Path("run/trainer_state.json").is_file()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--validation_file", "none.txt"], "none.txt"),
        (["--tokenizer_name", "./none"], "tokenizer './none' cannot be loaded"),
        (["--vocab_size", "260"], "vocab_size: got 260, expected at least 261"),
        (["--output_dir", "text.txt/run"], "output_dir text.txt/run cannot be created"),
        (["--model_name_or_path", "first"], "first/model.safetensors is damaged or cut off"),
        (["--learning_rate", "nan"], "learning_rate: got nan"),
        (["--report_to", "wandb"], "report_to wandb needs the package wandb"),
        (["--deepspeed", "none.json"], "deepspeed"),
    ],
)
def test_a_cheap_check_comes_before_the_training_text(settings, fails, monkeypatch, argv, message):
    if "first" in argv:
        MLM.main([*settings, "--output_dir", "first"])
        Path("first/model.safetensors").write_bytes(b"")

    def read(*_):
        raise AssertionError("the training text was read")

    monkeypatch.setattr(text_and_tokenizer, "load_documents", read)
    base = [] if "--output_dir" in argv else ["--output_dir", "run"]
    assert message in fails([*settings, *base, *argv])
    assert not Path("run").exists()


def test_the_arguments_are_kept_when_only_the_end_was_missing(settings):
    MLM.main([*settings, "--output_dir", "run"])
    interrupt(Path("run"), "checkpoint-6")
    MLM.main([*settings, "--output_dir", "run", "--logging_steps", "2"])
    assert "logging_steps: 2" in Path("run/run.yaml").read_text()


def test_no_step_at_all_is_no_success(settings, fails, monkeypatch):
    # As with a loader that does not know beforehand that it is empty.
    monkeypatch.setattr(run, "check_has_batches", lambda trainer: None)
    extra = ["--dataloader_drop_last", "--per_device_train_batch_size", "999"]
    line = fails([*settings, "--output_dir", "run", *extra])
    assert "nothing was trained: the training data gave no batch" in line
