"""The masked-LM recipe on two processes: every engine trains, resumes and saves like one process.

The engines' settings are those of `recipes/accelerate`, given to the processes as the launcher
would.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests import processes
from tests.recipes.mlm_recipe import MLM, write_long_run
from tests.recipes.test_mlm import interrupt, same, weights

ENGINES = ["ddp-cpu", "zero1", "zero2", "zero3", "fsdp2"]
pytestmark = pytest.mark.slow


def train(argv):
    MLM.main(argv)
    return sorted(str(path) for path in Path("run").glob("*"))


def history(folder, key):
    state = json.loads((folder / "run" / "trainer_state.json").read_text())
    return {e["step"]: e[key] for e in state["log_history"] if key in e}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Arguments of a run of 16 steps with a checkpoint after 8."""
    config = write_long_run(tmp_path_factory.mktemp("text"))

    def arguments(*more, batch=4):
        return ["--config", str(config), "--per_device_train_batch_size", str(batch), *more]

    return arguments


@pytest.mark.parametrize("engine", ENGINES)
def test_two_processes_have_the_losses_of_one(engine, whole, tmp_path):
    still = ["--config_overrides", "hidden_dropout_prob=0"]
    processes.run(train, whole(*still, batch=8), folder=tmp_path / "one")
    processes.run(
        train, whole(*still, batch=4), folder=tmp_path / "two", processes=2, engine=engine
    )
    for key in ("loss", "eval_loss"):
        one, two = history(tmp_path / "one", key), history(tmp_path / "two", key)
        assert 16 in one
        assert two == pytest.approx(one, abs=1e-4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Runs with dropout, one an engine, as `finished(engine)` first asks for them."""
    folders = {}

    def finish(engine, arguments):
        if engine not in folders:
            folders[engine] = tmp_path_factory.mktemp(engine)
            processes.run(train, arguments, folder=folders[engine], processes=2, engine=engine)
        return folders[engine]

    return finish


def reload_loss(argv):
    """The first evaluation of a run that begins with the saved weights."""
    MLM.main(argv)
    state = json.loads(Path("again/trainer_state.json").read_text())
    return state["log_history"][0]["eval_loss"]


@pytest.mark.parametrize("engine", ENGINES)
def test_b36_two_processes_resume_to_the_same_digits(engine, finished, whole, tmp_path):
    before = finished(engine, whole())
    shutil.copytree(before / "run", tmp_path / "two" / "run")
    interrupt(tmp_path / "two" / "run", "checkpoint-8")
    processes.run(train, whole(), folder=tmp_path / "two", processes=2, engine=engine)
    for key in ("loss", "eval_loss", "grad_norm"):
        assert history(tmp_path / "two", key) == history(before, key)
    assert same(weights(before / "run"), weights(tmp_path / "two" / "run"))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_saved_model_has_the_final_evaluation_loss(engine, finished, whole, tmp_path):
    folder = finished(engine, whole())
    assert set(weights(folder / "run")) == set(weights(folder / "run" / "checkpoint-16"))
    changes = ["--model_name_or_path", str(folder / "run"), "--output_dir", "again"]
    argv = whole("--max_steps", "1", *changes)
    [loss] = processes.run(reload_loss, argv, folder=tmp_path / "one")
    assert loss == pytest.approx(history(folder, "eval_loss")[16], abs=1e-6)
