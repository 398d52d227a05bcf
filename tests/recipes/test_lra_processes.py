"""Two processes give the losses of one, for one sequence and for two towers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import processes
from tests.recipes.long_run import train
from tests.recipes.lra_recipe import ROOT, SETTINGS


def launch(arguments: list[str]) -> None:
    """Run the program on two processes, as a launcher starts them."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29741",
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    command = [sys.executable, str(ROOT / "recipes" / "lra.py"), *arguments]
    running = [
        subprocess.Popen(command, env=environment | {"RANK": rank, "LOCAL_RANK": rank})
        for rank in "01"
    ]
    assert [process.wait(timeout=300) for process in running] == [0, 0]


def measured(folder: str) -> dict[str, list[float]]:
    history = json.loads(Path(folder, "trainer_state.json").read_text())["log_history"]
    results = json.loads(Path(folder, "all_results.json").read_text())
    found = {
        name: [entry[name] for entry in history if name in entry]
        for name in ("loss", "eval_loss", "eval_accuracy")
    }
    return {**found, "test": [results["test_accuracy"], results["test_loss"]]}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["listops", "retrieval"])
def test_two_processes_train_validate_and_test_as_one(tmp_path, task):
    # Numbers of rows that two processes do not share evenly.
    settings = SETTINGS | {"listops_validation": 19, "listops_test": 29, "ignore_data_skip": False}
    Path("small.yaml").write_text(yaml.safe_dump(settings))
    for part in ("train", "eval", "test"):
        texts = [("same words", "other")[n % 3 == 0] + " " * (n % 5) + str(n) for n in range(21)]
        rows = [f"{n % 2}.0\ta\tb\t{t}\t{t[::-1]}" for n, t in enumerate(texts)]
        (tmp_path / f"new_aan_pairs.{part}.tsv").write_text("\n".join(rows) + "\n")
    command = ["--config", "small.yaml", "--task", task, "--max_steps", "4", "--config_overrides",
               "hidden_dropout_prob=0.0"]  # fmt: skip
    if task == "retrieval":
        command += ["--data_dir", str(tmp_path)]
    processes.run(train, "lra", [*command, "--output_dir", "one"], folder=tmp_path)
    command += ["--output_dir", "two", "--per_device_train_batch_size", "2"]
    processes.run(train, "lra", command, folder=tmp_path, processes=2, engine="ddp-cpu")
    one, two = measured("one"), measured("two")
    assert len(one["loss"]) == 4
    for name, values in one.items():
        assert two[name] == pytest.approx(values, rel=1e-4), name


@pytest.mark.slow
def test_two_processes_carry_out_a_suite_and_take_it_up_again(tmp_path, capfd):
    Path("small.yaml").write_text(yaml.safe_dump(SETTINGS | {"ignore_data_skip": False}))
    command = ["--config", "small.yaml", "--task", "all", "--suite", "listops", "pathfinder",
               "--max_length", "1024", "--output_dir", "suite",
               "--per_device_train_batch_size", "2"]  # fmt: skip
    table = "chance level (here)"
    tasks = ("listops", "pathfinder")

    def tables_again():
        processes.run(train, "lra", command, folder=tmp_path, processes=2, engine="ddp-cpu")
        meeting = max(tmp_path.glob("meeting-*"))
        return sum(log.read_text().count(table) for log in meeting.glob("*.log"))

    launch(command)
    # In every table: one a run, and one for all of them.
    assert capfd.readouterr().out.count(table) == 3
    first = [measured(f"suite/{task}") for task in tasks]
    # The last task is finished already, and then every one is.
    shutil.rmtree("suite/listops")
    assert tables_again() == 2
    assert [measured(f"suite/{task}") for task in tasks] == first
    assert tables_again() == 1
