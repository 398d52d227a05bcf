"""The classification recipe as a person starts it, on one process and on two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.recipes.glue_recipe import RECIPE, ROOT, SETTINGS
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


def launch(processes: int, *arguments: str) -> str:
    """Start every rank by itself, which is quicker than a launcher."""
    running = []
    for rank in range(processes):
        own = environment(ACCELERATE_USE_CPU="true")
        if processes > 1:
            own |= {
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29747", "GLOO_SOCKET_IFNAME": "lo",
                "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
                "RANK": str(rank), "LOCAL_RANK": str(rank),
            }  # fmt: skip
        command = [sys.executable, str(RECIPE), "--config", "config.yaml", *arguments]
        running.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return outputs[0]


@pytest.mark.slow
def test_two_processes_measure_and_predict_as_one():
    # Seven evaluation rows: the last batch of one process is filled up with rows that must not
    # count.
    glue_folder(Path("glue"), dev=7, test=5)
    fields = SETTINGS["model"] | {"hidden_dropout_prob": 0.0}
    Path("config.yaml").write_text(yaml.safe_dump(SETTINGS | {"data_dir": "glue", "model": fields}))
    suite = ["--task", "rte,stsb,mnli", "--seeds", "3", "--do_predict"]
    launch(1, *suite, "--output_dir", "one", "--per_device_train_batch_size", "4")
    launch(2, *suite, "--output_dir", "two", "--per_device_train_batch_size", "2")
    assert "| processes | 2 |" in Path("two/rte/seed-3/README.md").read_text()
    for task in ("rte", "stsb", "mnli"):
        one, two = (Path(name, task, "seed-3") for name in ("one", "two"))
        histories = [
            json.loads((folder / "trainer_state.json").read_text())["log_history"]
            for folder in (one, two)
        ]
        losses = [[e["loss"] for e in entries if "loss" in e] for entries in histories]
        assert len(losses[0]) == 4
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
        results = [json.loads((f / "all_results.json").read_text()) for f in (one, two)]
        measured = [n for n in results[0] if n.startswith("eval_") and "second" not in n]
        for name in (n for n in measured if "runtime" not in n):
            assert results[1][name] == pytest.approx(results[0][name], rel=1e-4, abs=1e-6), name
        for file in (one / "predictions").iterdir():
            rows = [(f / "predictions" / file.name).read_text().split() for f in (one, two)]
            assert len(rows[0]) == 2 + 2 * 5
            if task != "stsb":
                assert rows[0] == rows[1]
