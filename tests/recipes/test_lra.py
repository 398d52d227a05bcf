"""The Long Range Arena recipe: what a run leaves behind, what is tested, how it goes on."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from PIL import Image
from transformers import AutoModelForSequenceClassification

from hf_linear_attn.training.lra.arguments import GeneratorArguments
from hf_linear_attn.training.lra.generated import drawn_folder
from hf_linear_attn.training.lra.listops_files import FILES, read_listops
from hf_linear_attn.training.lra.trainer import LraCollator, LraTrainer
from hf_linear_attn.training.program import run_program
from tests.recipes.lra_recipe import LRA, SETTINGS


@pytest.fixture
def run(tmp_path):
    """Runs the recipe under the small settings."""
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SETTINGS))

    def main(*arguments, output="run"):
        LRA.main(["--config", "small.yaml", "--output_dir", output, *arguments])

    return main


@pytest.fixture
def fails(tmp_path, capsys):
    """The one line of a mistake; nothing may be left behind."""
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SETTINGS))

    def line(*arguments):
        argv = ["--config", "small.yaml", "--output_dir", "run", *arguments]
        with pytest.raises(SystemExit) as stopped:
            run_program(LRA.main, argv)
        assert stopped.value.code == 2
        assert not Path("run").exists()
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("error: ")
        return error

    return line


def results(folder="run"):
    return json.loads(Path(folder, "all_results.json").read_text())


def evaluations(folder="run", also=None):
    history = json.loads(Path(folder, "trainer_state.json").read_text())["log_history"]
    names = ["step", "eval_accuracy", *([also] if also else [])]
    return [tuple(entry[name] for name in names) for entry in history if "eval_loss" in entry]


def weights(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder).state_dict()


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def interrupt(folder: Path, *kept: str) -> None:
    """As if it had been killed after these checkpoints."""
    for path in folder.iterdir():
        if path.name in (*kept, "run.yaml", "data.json"):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def accuracy_of(folder, split="test"):
    """Found again from files and weights alone."""
    names = {k: v for k, v in SETTINGS.items() if k.startswith(("listops", "path", "gen"))}
    rows = read_listops(drawn_folder("listops", GeneratorArguments(**names), None))[split]
    made = LraCollator(0, 1)(
        [{"input_ids": r[0], "labels": y} for r, y in zip(rows.rows, rows.labels, strict=True)]
    )
    labels = made.pop("labels")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    return float((model(**made).logits.argmax(-1) == labels).float().mean())


def test_a_run_leaves_everything_behind_and_says_the_truth(run, capsys):
    run()
    out = capsys.readouterr().out
    left = {path.name for path in Path("run").iterdir()}
    assert left >= {
        "model.safetensors", "config.json", "README.md", "accuracy_curve.csv",
        "accuracy_curve.png", "trainer_state.json", "all_results.json", "test_results.json",
        "run.yaml", "data.json",
    }  # fmt: skip
    found = results()
    assert found["task"] == "listops"
    assert found["preset"] == "official"
    assert found["test_examples"] == 30
    assert found["test_accuracy"] == pytest.approx(accuracy_of("run"))
    assert f"{100 * found['test_accuracy']:.2f}" in out
    assert f"{100 * found['chance_level']:.2f}" in out
    assert "chance level" in out
    assert "ListOps, preset official" in out
    assert "none was longer" in out
    assert "optimiser steps 6 instead of 5,000" in out
    assert "hidden_size 16 instead of 512" in out
    assert "Drawing 110 ListOps expressions, about 1 s on 1 process, into drawn/listops-" in out

    with open("run/accuracy_curve.csv", newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == [str(step) for step in range(7)]
    with open("run/accuracy_curve.csv", newline="") as file:
        drawn = [(int(r["step"]), r["validation_accuracy"], r["validation_loss"])
                 for r in csv.DictReader(file) if r["validation_accuracy"]]  # fmt: skip
    # The best model is validated once more behind the last step: that is not the curve's.
    logged = {step: entry for step, *entry in reversed(evaluations(also="eval_loss"))}
    assert drawn == [(step, *map(str, logged[step])) for step in (0, 2, 4, 6)]
    with Image.open("run/accuracy_curve.png") as picture:
        picture.verify()
    card = Path("run/README.md").read_text()
    index = ModelCard(card).data.eval_results
    assert {result.dataset_split for result in index} == {"test", "validation"}
    assert "| preset | official |" in card
    assert f"{found['chance_level']:.4f}" in card
    assert {"cosformer", "listops", "long-range-arena"} <= set(ModelCard(card).data.tags)
    assert str(Path.cwd()) not in card


def test_the_checkpoint_that_is_best_on_the_validation_split_is_the_one_tested_once(
    run, monkeypatch
):
    tested = []
    evaluate = LraTrainer.evaluate

    def count(self, *args, metric_key_prefix="eval", **kwargs):
        tested.append(metric_key_prefix)
        return evaluate(self, *args, metric_key_prefix=metric_key_prefix, **kwargs)

    monkeypatch.setattr(LraTrainer, "evaluate", count)
    run("--learning_rate", "0.05")
    assert tested.count("test") == 1
    assert tested[-1] == "test"
    found = results()
    saved = [(step, value) for step, value in evaluations()[:-1] if step]
    best = max(value for _, value in saved)
    assert found["best_step"] == next(step for step, value in saved if value == best)
    assert found["best_validation_accuracy"] == pytest.approx(best)
    assert same(weights("run"), weights(f"run/checkpoint-{found['best_step']}"))
    # Otherwise this test would not tell the best from the last.
    assert found["best_step"] != 6


def test_a_finished_run_is_left_as_it_is(run, capsys):
    run()
    before = {p: p.read_bytes() for p in Path("run").rglob("*") if p.is_file()}
    run()
    assert "finished; nothing was changed" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in Path("run").rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("schedule", ["null", "one_cycle"])
def test_b36_a_run_that_was_killed_ends_with_the_same_weights(run, schedule):
    command = ["--config_overrides", "hidden_dropout_prob=0.1", "--lr_schedule", schedule,
               "--warmup_steps", "2"]  # fmt: skip
    run(*command)
    whole, measured = weights("run/checkpoint-6"), results()
    interrupt(Path("run"), "checkpoint-2")
    run(*command)
    assert same(weights("run/checkpoint-6"), whole)
    for name in ("test_accuracy", "best_step", "train_loss"):
        assert results()[name] == measured[name]


def test_killed_between_training_and_test_the_best_checkpoint_is_tested_all_the_same(run):
    run("--learning_rate", "0.05")
    measured = results()
    assert measured["best_step"] != 6
    interrupt(Path("run"), *(f"checkpoint-{step}" for step in (2, 4, 6)))
    run("--learning_rate", "0.05")
    found = results()
    for name in ("test_accuracy", "best_step", "best_validation_accuracy"):
        assert found[name] == measured[name]
    assert same(weights("run"), weights(f"run/checkpoint-{found['best_step']}"))


@pytest.mark.slow
@pytest.mark.parametrize("kept", [("checkpoint-2", "checkpoint-4"), ("checkpoint-2",)])
def test_a_folder_that_was_moved_tests_its_best_checkpoint_or_says_it_is_missing(run, kept):
    rate = ["--learning_rate", "0.05"]
    run(*rate)
    best = results()["best_step"]
    assert best == 4
    interrupt(Path("run"), *kept, "checkpoint-6")
    Path("run").rename("moved")
    if len(kept) == 1:
        with pytest.raises(ValueError, match="checkpoint-4, the best checkpoint so far"):
            run(*rate, output="moved")
        return
    run(*rate, output="moved")
    assert results("moved")["best_step"] == best
    assert same(weights("moved"), weights("moved/checkpoint-4"))


def test_a_run_without_a_validated_checkpoint_is_no_result(run):
    with pytest.raises(ValueError, match="no checkpoint was validated"):
        run("--eval_delay", "7")
    assert not Path("run/all_results.json").exists()


def test_other_examples_are_refused_when_a_run_goes_on(run):
    run()
    interrupt(Path("run"), "checkpoint-2")
    file = next(Path("drawn").glob(f"listops-*/{FILES['train']}"))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:-2], lines[-1], lines[-2]]))
    with pytest.raises(ValueError, match="the train examples are not those"):
        run()


@pytest.mark.slow
def test_the_suite_runs_every_task_once_and_ends_in_one_table(run, capsys):
    command = ["--task", "all", "--suite", "listops", "pathfinder", "--max_length", "1024"]
    run(*command)
    first = capsys.readouterr().out
    folders = {path.name for path in Path("run").iterdir()}
    assert folders == {"listops", "pathfinder"}
    table = first[first.rindex("Long Range Arena, test accuracy") :]
    for task in folders:
        found = results(f"run/{task}")
        assert found["task"] == task
        assert f"{100 * found['test_accuracy']:.2f}" in table
        assert f"{100 * found['chance_level']:.2f}" in table
    assert "36.37" in table
    assert "71.40" in table
    shutil.rmtree("run/pathfinder")
    run(*command)
    again = capsys.readouterr().out
    assert again.count("finished; nothing was changed") == 1
    assert again[again.rindex("Long Range Arena, test accuracy") :] == table


def test_a_mistake_in_a_later_task_of_the_suite_shows_before_the_first_one_trains(fails):
    error = fails("--task", "all", "--suite", "listops", "image")
    assert "task image needs data_dir" in error


@pytest.mark.slow
def test_towers_images_and_bytes_train_too(run, tmp_path):
    data = tmp_path / "data"
    texts = ["good film", "bad film!", "fine", "dull"] * 5
    for split in ("train", "test"):
        (data / "imdb").mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"text": t, "label": n % 2}) for n, t in enumerate(texts)]
        (data / "imdb" / f"{split}.jsonl").write_text("\n".join(lines))
    (data / "retrieval").mkdir()
    for part in ("train", "eval", "test"):
        rows = [f"{n % 2}.0\ta{n}\tb{n}\t{t}\t{t[::-1]} {n}" for n, t in enumerate(texts)]
        (data / "retrieval" / f"new_aan_pairs.{part}.tsv").write_text("\n".join(rows) + "\n")
    (data / "image").mkdir()
    for split, count in (("train", 20), ("test", 10)):
        images = np.random.default_rng(0).integers(0, 256, (count, 32, 32)).astype(np.uint8)
        name = data / "image" / f"cifar10_gray_{split}.npz"
        np.savez(name, images=images, labels=np.arange(count) % 10)
    command = ["--task", "all", "--suite", "text", "retrieval", "image", "--data_dir", str(data)]
    command += ["--max_length", "1024", "--max_steps", "4", "--warmup_steps", "2"]
    command += ["--preset", "nystromformer"]
    run(*command)
    for task, examples in (("text", 20), ("retrieval", 20), ("image", 10)):
        found = results(f"run/{task}")
        assert found["test_examples"] == examples
        assert found["preset"] == "nystromformer"


def test_the_presets_file_lies_below_and_the_command_line_above(run):
    run("--max_steps", "2", "--adam_epsilon", "1e-7")
    stored = yaml.safe_load(Path("run/run.yaml").read_text())
    assert stored["adam_beta2"] == 0.98
    assert stored["lr_scheduler_type"] == "inverse_sqrt"
    assert stored["model"]["attention_bias"] is False
    assert stored["model"]["hidden_size"] == 16
    assert stored["adam_epsilon"] == 1e-7
    # The run's own file says everything: it gives the same run.
    LRA.main(["--config", "run/run.yaml"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "listop"], "did you mean 'listops'"),
        (["--preset", "jax"], "preset: got 'jax', expected one of official, nystromformer"),
        (["--task", "pathx", "--preset", "nystromformer"], "has no task 'pathx'"),
        (["--task", "text"], "task text needs data_dir"),
        (["--task", "text", "--data_dir", "nowhere"], "data_dir 'nowhere' is no folder"),
        (["--suite", "text"], "suite names tasks of task=all"),
        (["--listops_min_length", "20"], "no tree is of such a length"),
        (["--listops_max_args", "1"], "listops_max_args: got 1"),
        (["--pathfinder_contour_length", "300"], "do not fit into 32 x 32"),
        (["--max_length", "0"], "max_length: got 0"),
        (["--over_long", "shorten"], "over_long: got 'shorten'"),
        (["--max_length", "5"], "say what becomes of them with over_long"),
        (["--load_best_model_at_end", "false"], "the one tested: expected"),
        (["--metric_for_best_model", "loss"], "metric_for_best_model accuracy"),
        (["--save_steps", "4"], "validation every 2 steps and checkpoints every 4 steps"),
        (["--save_strategy", "best"], "validation every 2 steps and checkpoints by best"),
        (["--eval_steps", "8", "--save_steps", "8"], "more than the 6 steps of the run"),
        (["--label_smoothing_factor", "0.1"], "label_smoothing_factor 0.1 is not supported"),
        (["--lr_schedule", "one_cycle", "--warmup_steps", "6"], "needs warmup_steps above 1"),
        (["--tokenizer_name", "gpt2"], "fixed tables of symbols"),
        (["--attention", "cosfromer"], "did you mean 'cosformer'"),
        (["--config_overrides", "max_position_embeddings=20"], "up to 21 positions"),
        (["--max_step", "3"], "unknown argument '--max_step'"),
        (["--config", "missing.yaml"], "'missing.yaml' does not exist"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_before_anything_is_written(fails, arguments, message):
    assert message in fails(*arguments)


def test_the_files_of_another_task_are_refused(fails, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "new_aan_pairs.train.tsv").write_text("0\ta\tb\tx\ty\n")
    error = fails("--data_dir", str(folder))
    assert "no files of the task listops" in error
    assert "it holds the files of retrieval" in error


def test_a_saved_model_is_trained_on(run):
    run("--max_steps", "2")
    run("--max_steps", "2", "--model_name_or_path", "run", output="on")
    assert "Training began with the weights of run." in Path("on/README.md").read_text()
