"""Mistakes of a person who finetunes: one line each, before anything is trained."""

import shutil
from pathlib import Path

import pytest

from tests.recipes.glue_recipe import GLUE, run, without_model_fields
from tests.training.glue.official import glue_folder, write


@pytest.fixture
def config(glue_config):
    return glue_config


BAD_INPUT = [
    pytest.param(["--task", "sst3"], "did you mean 'sst2'", id="task"),
    pytest.param(["--task", "imdb"], "no training rows of task imdb", id="no-data"),
    pytest.param(["--task", "rte", "--data_dir", "glue/QNLI"], "the folder of task qnli", id="dir"),
    pytest.param(["--task", "rte", "--seeds", "1,x"], "expected whole numbers", id="seeds"),
    pytest.param(["--task", "rte", "--max_length", "64"], "max_length 64 is above", id="length"),
    pytest.param(
        ["--task", "rte", "--mnli_checkpoint", "x", "--task", "cola"], "is for", id="mnli"
    ),
    pytest.param(["--task", "rte", "--new_head"], "give --model_name_or_path", id="new-head"),
    pytest.param(
        ["--task", "rte", "--tasks", "{rtee: {max_steps: 2}}"], "did you mean 'rte'", id="tasks"
    ),
    pytest.param(
        ["--task", "rte", "--tasks", "{rte: {max_stepz: 2}}"], "'max_steps'", id="setting"
    ),
    pytest.param(["--task", "stsb", "--label_smoothing_factor", "0.1"], "regression", id="smooth"),
    pytest.param(
        ["--task", "rte", "--vocab_size", "100"], "expected at least 261", id="vocabulary"
    ),
    pytest.param(
        ["--task", "rte", "--seeds", "1", "--tasks", "{rte: {seed: 2}}"], "cannot be", id="own-seed"
    ),
    pytest.param(["--task", "sst2", "--validation_fraction", "0.1"], "of its own", id="fraction"),
    pytest.param(
        ["--task", "embedded", "--data_dir", "null", "--do_predict"], "no test rows", id="predict"
    ),
    pytest.param(
        ["--task", "all", "--seeds", "1", "--data_dir", "part"], "training rows of task", id="part"
    ),
    pytest.param(["--task", "wnli", "--data_dir", "bad"], "label '2' is unknown", id="label"),
    pytest.param(["--task", "rte,wnli", "--data_dir", "bad"], "label '2'", id="label-in-suite"),
    pytest.param(["--task", "sst2", "--data_dir", "bad"], "rows are of class", id="one-class"),
    pytest.param(["--task", "stsb", "--data_dir", "bad"], "outside of 0 to 5", id="stsb-range"),
]


@pytest.mark.parametrize(("argv", "message"), BAD_INPUT)
def test_bad_input_is_one_line_before_any_training(config, fails_with, argv, message):
    glue_folder(Path("part"))
    shutil.rmtree("part/WNLI")
    glue_folder(Path("bad"))
    write(Path("bad/WNLI/train.tsv"), "index\tsentence1\tsentence2\tlabel", "0\ta\tb\t2")
    write(Path("bad/SST-2/train.tsv"), "sentence\tlabel", "good\t1", "fine\t1")
    file = Path("bad/STS-B/train.tsv")
    file.write_text(file.read_text().replace("5.000", "5.500"))
    assert message in fails_with(GLUE.main, [*config, *argv, "--output_dir", "run"])
    assert not Path("run").exists()


def test_a_model_of_another_task_is_refused(config, fails_with):
    run(config, "mnli", "--task", "mnli")
    without_model_fields(config)
    argv = [*config, "--output_dir", "run", "--task", "rte", "--model_name_or_path", "mnli"]
    line = fails_with(GLUE.main, argv)
    assert "task and model do not agree" in line
    assert "neutral" in line
    assert not Path("run").exists()


def test_the_test_rows_never_choose_the_checkpoint(config, fails_with):
    for split in ("train", "test"):
        for name in ("neg", "pos"):
            write(Path(f"aclImdb/{split}/{name}/0_1.txt"), f"a {name} film")
    argv = [*config, "--task", "imdb", "--data_dir", "aclImdb", "--output_dir", "run"]
    assert "by its test rows" in fails_with(GLUE.main, [*argv, "--load_best_model_at_end"])
