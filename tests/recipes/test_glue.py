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
from tests.recipes.glue_recipe import GLUE, SETTINGS, run, weights, without_model_fields
from tests.recipes.test_mlm import interrupt, same, strip
from tests.training.glue.official import write


@pytest.fixture
def config(glue_config):
    return glue_config


def history(folder) -> list[dict]:
    return json.loads((Path(folder) / "trainer_state.json").read_text())["log_history"]


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


def test_the_encoder_of_an_mnli_model_gets_a_new_head(config, fails_with):
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
    # A model of another task is none of MNLI.
    argv = [*config, "--task", "rte", "--mnli_checkpoint", "stsb", "--output_dir", "rte"]
    line = fails_with(GLUE.main, argv)
    assert "mnli_checkpoint stsb is not finetuned on mnli: its classes are score" in line
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
        "--positive_class", "bad",
    )  # fmt: skip
    out = capsys.readouterr().out
    assert "evaluated on 0.1 of the training rows, held out" in out
    assert {"eval_accuracy", "eval_f1", "test_accuracy", "test_f1"} <= set(results)
    assert (results["test_split"], results["test_rows"]) == ("test", 10)
    # The constant answer stands beside the test rows too, in the table and on the card.
    assert results["test_baseline_accuracy"] == 0.5
    assert re.search(r"test: accuracy +│ +10 │ +\d.\d{4} │ +0.5000 │", out)
    assert "test: f1 (of bad)" in out
    card = Path("run/README.md").read_text()
    assert re.search(r"\| accuracy \| test \| 10 \| [^|]+ \| 0.5000 \|", card)
    assert "F1 is about the class bad." in card
    rows = predictions("run", "predictions.tsv")[1:]
    assert len(rows) == 10
    assert {row[1] for row in rows} <= {"bad", "good"}
