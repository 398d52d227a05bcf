"""The classification recipe as a person starts it, on one process and on two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import processes
from tests.recipes.glue_recipe import RECIPE, ROOT, SETTINGS
from tests.recipes.long_run import train
from tests.training.glue.official import glue_folder

ACCELERATE = str(Path(sys.executable).with_name("accelerate"))


def environment(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HF_DATASETS_CACHE": str(Path.cwd() / "cache"),
        "COLUMNS": "200",
        "OMP_NUM_THREADS": "1",
        **more,
    }


@pytest.mark.slow
def test_the_default_run_beats_the_majority_class_clearly():
    done = subprocess.run(
        [ACCELERATE, "launch", str(RECIPE), "--disable_tqdm"],
        env=environment(), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(Path("runs/glue-tiny-cpu/all_results.json").read_text())
    assert results["eval_accuracy"] >= results["eval_baseline_accuracy"] + 0.25
    assert f"{results['eval_accuracy']:.4f}" in done.stdout


@pytest.mark.slow
def test_a_mistake_is_one_line_and_exit_code_two():
    done = subprocess.run(
        [sys.executable, str(RECIPE), "--task", "sst3"],
        env=environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "did you mean 'sst2'" in done.stderr


@pytest.fixture
def config():
    """Seven evaluation rows: the last batch of one process is filled up with rows that must not
    count."""
    glue_folder(Path("glue"), dev=7, test=5)
    fields = SETTINGS["model"] | {"hidden_dropout_prob": 0.0}
    settings = SETTINGS | {"data_dir": str(Path("glue").absolute()), "model": fields}
    file = Path("config.yaml").absolute()
    file.write_text(yaml.safe_dump(settings))
    return ["--config", str(file), "--do_predict"]


def start(argv: list[str], name: str, count: int, engine: str | None = None) -> Path:
    """Run the recipe in processes of their own; the folder they worked in."""
    folder = Path(name).absolute()
    batch = ["--per_device_train_batch_size", str(4 // count)]
    processes.run(train, "glue", [*argv, *batch], folder=folder, processes=count, engine=engine)
    return folder


def losses(folder: Path) -> list[float]:
    state = json.loads((folder / "trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


@pytest.mark.slow
def test_a_suite_on_two_processes_measures_and_predicts_as_on_one(config):
    suite = [*config, "--task", "rte,stsb", "--seeds", "3", "--output_dir", "run"]
    one, two = start(suite, "one", 1), start(suite, "two", 2, "ddp-cpu")
    for task in ("rte", "stsb"):
        compare(*(folder / "run" / task / "seed-3" for folder in (one, two)), task != "stsb")
    assert "| processes | 2 |" in (two / "run/rte/seed-3/README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["zero3", "fsdp2"])
def test_an_engine_that_shares_the_weights_measures_and_predicts_as_one_process(config, engine):
    one = start([*config, "--task", "mnli", "--output_dir", "run"], "one", 1)
    two = start([*config, "--task", "mnli", "--output_dir", "run"], "two", 2, engine)
    compare(one / "run", two / "run", True)


def compare(one: Path, two: Path, has_classes: bool) -> None:
    """Losses, metrics and predictions of two runs are the same."""
    assert len(losses(one)) == 4
    assert losses(two) == pytest.approx(losses(one), abs=1e-4)
    results = [json.loads((folder / "all_results.json").read_text()) for folder in (one, two)]
    clock = ("second", "runtime")
    for name, value in results[0].items():
        if name.startswith("eval_") and not any(word in name for word in clock):
            assert results[1][name] == pytest.approx(value, abs=1e-4), name
    for file in (one / "predictions").iterdir():
        rows = [(f / "predictions" / file.name).read_text().split() for f in (one, two)]
        assert len(rows[0]) == 2 + 2 * 5
        assert rows[0] == rows[1] or not has_classes
