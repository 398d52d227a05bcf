"""The classification recipe: what a run leaves behind, how it goes on, whose classes count."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModel, AutoModelForSequenceClassification, pipeline

import hf_linear_attn as hla
from hf_linear_attn.training.program import run_program
from tests.recipes.glue_recipe import GLUE, SETTINGS
from tests.recipes.test_mlm import interrupt, same, snapshot, strip
from tests.training.glue.official import glue_folder, write


@pytest.fixture
def config(tmp_path):
    """The arguments of a small run on small official folders."""
    glue_folder(tmp_path / "glue")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(SETTINGS | {"data_dir": "glue"}))
    return ["--config", "config.yaml"]


def run(config, folder, *extra) -> dict:
    GLUE.main([*config, "--output_dir", folder, *extra])
    return json.loads((Path(folder) / "all_results.json").read_text())


def history(folder) -> list[dict]:
    return json.loads((Path(folder) / "trainer_state.json").read_text())["log_history"]


def weights(folder) -> dict[str, torch.Tensor]:
    return AutoModelForSequenceClassification.from_pretrained(folder).state_dict()


def predictions(folder, name) -> list[list[str]]:
    with open(Path(folder) / "predictions" / name, newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


def test_a_run_leaves_everything_behind_and_says_the_truth(config, capsys):
    results = run(config, "run", "--task", "mrpc", "--do_predict")
    out = capsys.readouterr().out
    left = {path.name for path in Path("run").iterdir()}
    assert left >= {
        "model.safetensors", "config.json", "tokenizer.json", "README.md", "loss_curve.csv",
        "loss_curve.png", "trainer_state.json", "all_results.json", "run.yaml", "predictions",
        "checkpoint-2", "checkpoint-4",
    }  # fmt: skip
    assert results["eval_score"] == pytest.approx(
        (results["eval_accuracy"] + results["eval_f1"]) / 2
    )
    assert results["eval_baseline_accuracy"] == 0.5
    assert f"{results['eval_accuracy']:.4f}" in out
    assert "always not_equivalent" in out
    assert "train: 12 rows; not_equivalent 6, equivalent 6" in out

    rows = predictions("run", "MRPC.tsv")
    assert rows[0] == ["index", "prediction"]
    assert [row[0] for row in rows[1:]] == ["0", "1", "2", "3"]
    assert {row[1] for row in rows[1:]} <= {"0", "1"}

    card = Path("run/README.md").read_text()
    assert ModelCard(card).data.pipeline_tag == "text-classification"
    assert f"{results['eval_f1']:.4f}" in card
    assert str(Path.cwd()) not in card
    saved = json.loads(Path("run/config.json").read_text())
    assert saved["id2label"] == {"0": "not_equivalent", "1": "equivalent"}


def test_the_saved_model_answers_by_name_as_it_was_measured(config):
    results = run(config, "run", "--task", "sst2")
    classify = pipeline("text-classification", model="run")
    rows = Path("glue/SST-2/dev.tsv").read_text().splitlines()[1:]
    right = 0
    for row in rows:
        text, label = row.split("\t")
        right += classify(text.strip())[0]["label"] == ("negative", "positive")[int(label)]
    assert right / len(rows) == pytest.approx(results["eval_accuracy"])


@pytest.mark.parametrize(
    ("task", "metrics"),
    [
        pytest.param("cola", {"eval_matthews_correlation"}, marks=pytest.mark.slow),
        ("stsb", {"eval_pearson", "eval_spearmanr"}),
        ("mnli", {"eval_accuracy", "eval_mismatched_accuracy"}),
    ],
)
def test_tasks_have_their_official_metrics_and_files(config, task, metrics):
    results = run(config, "run", "--task", task, "--do_predict")
    assert set(results) >= metrics
    if task == "mnli":
        assert results["eval_baseline_accuracy"] == pytest.approx(1 / 3)
        assert results["eval_mismatched_baseline_accuracy"] == 1
        assert results["eval_mismatched_loss"] != results["eval_loss"]
        names = {path.name for path in Path("run/predictions").iterdir()}
        assert names == {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}
        rows = predictions("run", "MNLI-m.tsv")[1:]
        assert [row[0] for row in rows] == ["7", "8", "9", "10"]
        assert {row[1] for row in rows} <= {"entailment", "neutral", "contradiction"}
    if task == "stsb":
        assert all(0 <= float(row[1]) <= 5 for row in predictions("run", "STS-B.tsv")[1:])


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param([], id="shuffled"),
        pytest.param(
            ["--train_sampling_strategy", "group_by_length"], marks=pytest.mark.slow, id="by-length"
        ),
    ],
)
def test_b36_an_interrupted_run_goes_on_bit_for_bit(config, capsys, extra):
    command = ["--task", "mnli", "--config_overrides", "hidden_dropout_prob=0.1", *extra]
    whole = run(config, "whole", *command)
    shutil.copytree("whole", "again")
    interrupt(Path("again"), "checkpoint-2")
    capsys.readouterr()
    again = run(config, "again", *command)
    assert "Going on from again/checkpoint-2" in capsys.readouterr().out
    assert same(weights("again"), weights("whole"))
    assert strip(history("again")) == strip(history("whole"))
    assert again["eval_mismatched_accuracy"] == whole["eval_mismatched_accuracy"]


@pytest.mark.slow
def test_a_run_does_not_go_on_with_other_labels(config, capsys):
    run(config, "run", "--task", "sst2")
    interrupt(Path("run"), "checkpoint-2")
    file = Path("glue/SST-2/train.tsv")
    file.write_text(file.read_text().replace("film 1 \t1", "film 1 \t0"))
    with pytest.raises(ValueError, match="training examples are not those"):
        run(config, "run", "--task", "sst2")


@pytest.mark.slow
def test_the_commands_to_run_next_work(config, capsys):
    run(config, "run", "--task", "rte")
    out = capsys.readouterr().out
    GLUE.main(proposed_by_glue(out, "train longer"))
    assert [e["step"] for e in history("run") if "loss" in e] == list(range(1, 9))
    capsys.readouterr()
    GLUE.main(proposed_by_glue(out, "the same run with another attention"))
    saved = json.loads(Path("run-transnormer/config.json").read_text())
    assert saved["model_type"] == "transnormer"


def proposed_by_glue(out: str, purpose: str) -> list[str]:
    (line,) = re.findall(rf"^# {purpose}.*\n(.*)$", out, flags=re.MULTILINE)
    return line.split()[3:]


def masked_lm(folder: str, is_decoder: bool = False) -> None:
    """A pretrained model with its tokenizer."""
    from hf_linear_attn.training.tokenizer import load_or_train_tokenizer

    model = hla.CosformerForCausalLM if is_decoder else hla.CosformerForMaskedLM
    torch.manual_seed(5)
    fields = {**SETTINGS["model"], "vocab_size": 261, "pad_token_id": 1}
    model(hla.CosformerConfig(**fields)).save_pretrained(folder)
    tokenizer = load_or_train_tokenizer(None, ["text"], 261, 32, causal=is_decoder)
    tokenizer.save_pretrained(folder)


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Equal but for steps of 1e-30, which only a weight of 0 shows."""
    return a.keys() == b.keys() and all(torch.allclose(a[n], b[n], 0, 1e-20) for n in a)


@pytest.mark.parametrize("is_decoder", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_pretrained_trunk_is_taken_and_the_head_is_new(config, is_decoder):
    masked_lm("pretrained", is_decoder)
    settings = SETTINGS | {"data_dir": "glue", "model": {}, "learning_rate": 1e-30}
    Path("config.yaml").write_text(yaml.safe_dump(settings))
    run(config, "run", "--task", "cola", "--model_name_or_path", "pretrained")
    before = AutoModel.from_pretrained("pretrained").state_dict()
    after = AutoModelForSequenceClassification.from_pretrained("run")
    assert close(after.base_model.state_dict(), before)
    assert after.config.is_decoder is is_decoder


@pytest.mark.slow
def test_a_new_decoder_is_trained(config):
    run(config, "run", "--task", "sst2", "--config_overrides", "is_decoder=true")
    saved = json.loads(Path("run/config.json").read_text())
    assert saved["is_decoder"] is True
    assert saved["pooling"] == "last"


def without_model_fields(config) -> None:
    settings = {k: v for k, v in SETTINGS.items() if k != "model"} | {"data_dir": "glue"}
    Path("config.yaml").write_text(yaml.safe_dump(settings))


def test_a_classifier_with_its_classes_in_another_order_keeps_it(config, capsys):
    run(config, "first", "--task", "rte")
    without_model_fields(config)
    saved = json.loads(Path("first/config.json").read_text())
    saved["id2label"] = {"0": "not_entailment", "1": "entailment"}
    saved["label2id"] = {"not_entailment": 0, "entailment": 1}
    Path("first/config.json").write_text(json.dumps(saved))
    capsys.readouterr()
    run(config, "second", "--task", "rte", "--model_name_or_path", "first", "--do_predict")
    assert "rows are mapped by name" in capsys.readouterr().out
    again = json.loads(Path("second/config.json").read_text())
    assert again["id2label"] == saved["id2label"]
    names = {row[1] for row in predictions("second", "RTE.tsv")[1:]}
    assert names <= {"entailment", "not_entailment"}


def test_the_encoder_of_an_mnli_model_gets_a_new_head(config):
    run(config, "mnli", "--task", "mnli")
    settings = {k: v for k, v in SETTINGS.items() if k != "model"}
    settings |= {"data_dir": "glue", "learning_rate": 1e-30}
    Path("config.yaml").write_text(yaml.safe_dump(settings))
    run(config, "stsb", "--task", "stsb", "--mnli_checkpoint", "mnli")
    before = AutoModelForSequenceClassification.from_pretrained("mnli")
    after = AutoModelForSequenceClassification.from_pretrained("stsb")
    assert close(after.base_model.state_dict(), before.base_model.state_dict())
    assert after.config.num_labels == 1
    dense = "classifier.dense.weight"
    assert not torch.equal(after.state_dict()[dense], before.state_dict()[dense])


@pytest.mark.slow
def test_b41_every_parameter_takes_part_in_the_loss(config):
    for task in ("sst2", "stsb"):
        run(config, task, "--task", task, "--max_steps", "1")
        state = torch.load(f"{task}/checkpoint-1/optimizer.pt", weights_only=True)
        model = AutoModelForSequenceClassification.from_pretrained(task)
        assert len(state["state"]) == len(list(model.parameters()))


@pytest.mark.slow
def test_b39_accumulated_batches_equal_a_big_one(config):
    common = ["--task", "sst2", "--max_steps", "3", "--eval_strategy", "no"]
    common += ["--config_overrides", "hidden_dropout_prob=0"]
    run(config, "big", *common, "--per_device_train_batch_size", "8")
    run(
        config, "small", *common, "--per_device_train_batch_size", "2",
        "--gradient_accumulation_steps", "4",
    )  # fmt: skip
    for one, other in zip(history("big"), history("small"), strict=True):
        if "loss" in one:
            assert other["loss"] == pytest.approx(one["loss"], rel=1e-5)


def test_a_custom_file_is_evaluated_on_held_out_rows_and_once_on_its_test_rows(config, capsys):
    lines = [f"word {i} {('ham', 'spam')[i % 2]},{('good', 'bad')[i % 2]}" for i in range(40)]
    write(Path("train.csv"), "body,kind", *lines[:30])
    write(Path("test.csv"), "body,kind", *lines[30:])
    config = ["--config", "config.yaml", "--data_dir", "null", "--task", "custom"]
    results = run(
        config, "run", "--train_file", "train.csv", "--test_file", "test.csv", "--do_predict",
        "--text_column", "body", "--label_column", "kind", "--metrics", "accuracy", "f1",
    )  # fmt: skip
    assert "evaluated on 0.1 of the training rows, held out" in capsys.readouterr().out
    assert {"eval_accuracy", "eval_f1", "test_accuracy", "test_f1"} <= set(results)
    rows = predictions("run", "predictions.tsv")[1:]
    assert len(rows) == 10
    assert {row[1] for row in rows} <= {"bad", "good"}


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


@pytest.fixture
def fails(capsys):
    """Run the recipe, expect exit code 2 and one line on stderr, return the line."""

    def run(argv: list[str]) -> str:
        with pytest.raises(SystemExit) as stop:
            run_program(GLUE.main, argv)
        assert stop.value.code == 2
        (line,) = [li for li in capsys.readouterr().err.splitlines() if li.startswith("error")]
        return line

    return run


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
def test_bad_input_is_one_line_before_any_training(config, fails, argv, message):
    glue_folder(Path("part"))
    shutil.rmtree("part/WNLI")
    glue_folder(Path("bad"))
    write(Path("bad/WNLI/train.tsv"), "index\tsentence1\tsentence2\tlabel", "0\ta\tb\t2")
    write(Path("bad/SST-2/train.tsv"), "sentence\tlabel", "good\t1", "fine\t1")
    file = Path("bad/STS-B/train.tsv")
    file.write_text(file.read_text().replace("5.000", "5.500"))
    assert message in fails([*config, *argv, "--output_dir", "run"])
    assert not Path("run").exists()


def test_a_model_of_another_task_is_refused(config, fails):
    run(config, "mnli", "--task", "mnli")
    without_model_fields(config)
    argv = [*config, "--output_dir", "run", "--task", "rte", "--model_name_or_path", "mnli"]
    line = fails(argv)
    assert "task and model do not agree" in line
    assert "neutral" in line
    assert not Path("run").exists()


def test_the_test_rows_never_choose_the_checkpoint(config, fails):
    for split in ("train", "test"):
        for name in ("neg", "pos"):
            write(Path(f"aclImdb/{split}/{name}/0_1.txt"), f"a {name} film")
    argv = [*config, "--task", "imdb", "--data_dir", "aclImdb", "--output_dir", "run"]
    assert "by its test rows" in fails([*argv, "--load_best_model_at_end"])


def test_a_suite_is_no_single_runs_folder(config, fails):
    run(config, "run", "--task", "rte")
    argv = [*config, "--output_dir", "run", "--task", "rte", "--seeds", "1"]
    assert "is a single run's folder" in fails(argv)
