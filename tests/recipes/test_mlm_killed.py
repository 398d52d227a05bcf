"""The masked-LM recipe killed at any moment: the next start goes on, bit for bit."""

import json
import os
import random
import signal
from pathlib import Path

import pytest

from hf_linear_attn.training.program import run_program
from tests import processes
from tests.recipes.killed import train_until
from tests.recipes.long_run import train, write_config
from tests.recipes.mlm_recipe import MLM
from tests.recipes.test_mlm import same, weights

pytestmark = pytest.mark.slow
CHOICE = random.Random(0)
# In this order, one start each. Logs come every 3 steps and checkpoints every 4, the older ones are
# removed at once.
KILLS = [
    ("at_step", CHOICE.randint(1, 4)),
    ("in_weights", "checkpoint-4/model.safetensors"),
    ("in_torch_save", f"checkpoint-4/{CHOICE.choice(['optimizer.pt', 'scheduler.pt'])}"),
    ("before_checksums", "checkpoint-4"),
    ("in_torch_save", f"checkpoint-8/{CHOICE.choice(['rng_state.pth', 'training_args.bin'])}"),
    ("in_state", "checkpoint-8/trainer_state.json"),
    ("before_checksums", "checkpoint-8"),
    ("in_removal", "trainer_state.json"),
    ("at_step", CHOICE.randint(1, 4)),
    # Those of the run are written beside its folder's files.
    ("in_weights", "run/.files."),
    ("in_card", ""),
    ("in_state", ".trainer_state.json"),
]


def logged(folder):
    """What was logged of training and evaluation, without what a clock says."""
    state = json.loads((folder / "run" / "trainer_state.json").read_text())
    kept = ("step", "epoch", "loss", "grad_norm", "learning_rate", "eval_loss")
    entries = [{k: e[k] for k in kept if k in e} for e in state["log_history"]]
    return [e for e in entries if "loss" in e or "eval_loss" in e]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    config = write_config(tmp_path_factory.mktemp("text"))
    cadence = ["--logging_steps", "3", "--save_steps", "4", "--save_total_limit", "1"]
    return ["--config", str(config), *cadence, "--eval_steps", "4"]


@pytest.fixture(scope="module")
def uninterrupted(arguments, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    processes.run(train, "mlm", arguments, folder=folder)
    return folder


def test_killed_at_many_moments_the_run_ends_bit_for_bit(arguments, uninterrupted, tmp_path):
    for moment, where in KILLS:
        code = processes.exit_code(train_until, arguments, moment, where, folder=tmp_path)
        assert code == -signal.SIGKILL, (moment, where)
        if str(where).startswith("checkpoint"):
            torn = tmp_path / "run" / Path(where).parts[0]
            assert torn.is_dir()
            assert not (torn / "checksums.json").exists()
        if where == "checkpoint-8":
            # The older one goes only when the newer one is sealed.
            assert (tmp_path / "run" / "checkpoint-4" / "model.safetensors").is_file()
    processes.run(train, "mlm", arguments, folder=tmp_path)
    assert same(weights(tmp_path / "run"), weights(uninterrupted / "run"))
    assert logged(tmp_path) == logged(uninterrupted)
    assert (tmp_path / "run" / "README.md").is_file()


def test_sigterm_saves_and_leaves_and_the_run_ends_bit_for_bit(arguments, uninterrupted, tmp_path):
    where = str(CHOICE.choice([5, 6, 7]))
    code = processes.exit_code(train_until, arguments, "sigterm_at_step", where, folder=tmp_path)
    assert code == 128 + signal.SIGTERM
    assert (tmp_path / "run" / f"checkpoint-{where}" / "checksums.json").is_file()
    assert not (tmp_path / "run" / "model.safetensors").exists()
    processes.run(train, "mlm", arguments, folder=tmp_path)
    assert same(weights(tmp_path / "run"), weights(uninterrupted / "run"))
    assert logged(tmp_path) == logged(uninterrupted)


def train_unread(argv):
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    run_program(MLM.main, argv)


def test_a_run_goes_on_where_nobody_reads_its_output(arguments, tmp_path):
    processes.run(train_unread, arguments, folder=tmp_path)
    assert (tmp_path / "run" / "trainer_state.json").is_file()
    log = (tmp_path / "meeting-0" / "0.log").read_text()
    assert log.count("nobody reads the output any more") == 1
    assert "Traceback" not in log
