"""Several tasks and seeds: the table over them, what is read again, what a figure stands beside."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.recipes.glue_recipe import GLUE, SETTINGS, run, weights
from tests.recipes.test_mlm import same, snapshot
from tests.training.glue.official import write


@pytest.fixture
def config(glue_config):
    return glue_config


@pytest.mark.slow
def test_a_suite_ends_in_a_table_and_reads_what_is_finished(config, capsys):
    command = [*config, "--task", "rte,mrpc,mnli", "--seeds", "1,2", "--output_dir", "suite"]
    command += ["--tasks", "{rte: {max_steps: 2}}"]
    GLUE.main(command)
    out = capsys.readouterr().out
    values = [
        json.loads(Path(f"suite/mrpc/seed-{seed}/all_results.json").read_text())["eval_f1"]
        for seed in (1, 2)
    ]
    mean = 100 * sum(values) / 2
    (row,) = [line for line in out.splitlines() if re.match(r"│ mrpc +│ f1", line)]
    assert f"{mean:.2f} ±" in row
    assert "mnli (mismatched)" in out
    assert "Published: " in out
    # Each seed has its own order and weights, each task its own length.
    assert not same(weights("suite/mrpc/seed-1"), weights("suite/mrpc/seed-2"))
    steps = {
        task: json.loads(Path(f"suite/{task}/seed-1/trainer_state.json").read_text())["global_step"]
        for task in ("rte", "mrpc")
    }
    assert steps == {"rte": 2, "mrpc": 4}

    with open("suite/results.csv", newline="") as file:
        table = list(csv.DictReader(file))
    (f1,) = [row for row in table if row["task"] == "mrpc" and row["metric"] == "f1"]
    assert float(f1["mean"]) == pytest.approx(mean / 100)
    assert Path("suite/results.png").stat().st_size > 0

    shutil.rmtree("suite/rte/seed-2")
    kept = snapshot(Path("suite/mrpc"))
    GLUE.main(command)
    again = capsys.readouterr().out
    assert "mrpc, seed 1: finished" in again
    assert Path("suite/rte/seed-2/all_results.json").exists()
    assert snapshot(Path("suite/mrpc")) == kept
    assert row in again


@pytest.mark.slow
def test_the_command_line_goes_over_the_settings_of_a_task(config):
    settings = SETTINGS | {"data_dir": "glue", "tasks": {"rte": {"max_steps": 2, "seed": 9}}}
    Path("config.yaml").write_text(yaml.safe_dump(settings))
    run(config, "a", "--task", "rte")
    run(config, "b", "--task", "rte", "--max_steps", "3")
    for folder, steps in (("a", 2), ("b", 3)):
        stored = yaml.safe_load(Path(folder, "run.yaml").read_text())
        assert (stored["max_steps"], stored["seed"], stored["tasks"]) == (steps, 9, None)


def test_a_suite_is_no_single_runs_folder(config, fails_with):
    run(config, "run", "--task", "rte")
    argv = [*config, "--output_dir", "run", "--task", "rte", "--seeds", "1"]
    assert "is a single run's folder" in fails_with(GLUE.main, argv)


def test_the_table_names_the_test_rows_and_the_published_results_follow(config, capsys):
    for split in ("train", "test"):
        for i in range(16):
            write(Path(f"aclImdb/{split}/{('neg', 'pos')[i % 2]}/{i}_1.txt"), f"film {i}")
    command = [*config, "--data_dir", "aclImdb", "--task", "imdb", "--seeds", "1"]
    command += ["--max_steps", "1", "--eval_strategy", "no"]
    GLUE.main([*command, "--output_dir", "plain"])
    out = capsys.readouterr().out
    assert re.search(r"│ imdb \(test\) +│ accuracy +│ +16 │", out)
    assert re.search(r"┃ model +┃ +imdb ┃", out)
    held_out = ["--validation_fraction", "0.25", "--max_eval_examples", "3"]
    GLUE.main([*command, "--output_dir", "held-out", *held_out])
    out = capsys.readouterr().out
    assert re.search(r"│ imdb +│ accuracy +│ +3\* │", out)
    assert re.search(r"│ imdb \(test\) +│ accuracy +│ +16 │", out)


def test_lost_results_show_before_anything_is_trained(config, fails_with):
    command = [*config, "--task", "rte", "--output_dir", "suite", "--max_steps", "1"]
    GLUE.main([*command, "--seeds", "1"])
    Path("suite/rte/seed-1/all_results.json").unlink()
    line = fails_with(GLUE.main, [*command, "--seeds", "1,2"])
    assert "suite/rte/seed-1/all_results.json is missing; put the file back" in line
    assert not Path("suite/rte/seed-2").exists()
