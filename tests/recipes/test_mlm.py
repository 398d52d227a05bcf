"""The masked-LM recipe: what a run leaves behind, how it goes on, and that its words are true."""

import csv
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from PIL import Image
from transformers import AutoModelForMaskedLM, AutoTokenizer

from hf_linear_attn.training import tokenizer
from hf_linear_attn.training.program import run_program
from tests.recipes.mlm_recipe import MLM, RECIPE, ROOT


def history(folder) -> list[dict]:
    return json.loads((Path(folder) / "trainer_state.json").read_text())["log_history"]


def weights(folder) -> dict[str, torch.Tensor]:
    return AutoModelForMaskedLM.from_pretrained(folder).state_dict()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_leaves_everything_behind_and_says_the_truth(settings, capsys):
    MLM.main([*settings, "--output_dir", "run"])
    out = capsys.readouterr().out
    left = {path.name for path in Path("run").iterdir()}
    assert left >= {
        "model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json",
        "README.md", "loss_curve.csv", "loss_curve.png", "trainer_state.json",
        "train_results.json", "eval_results.json", "all_results.json", "run.yaml",
        "checkpoint-3", "checkpoint-6",
    }  # fmt: skip

    evaluations = [entry for entry in history("run") if "eval_loss" in entry]
    assert [entry["step"] for entry in evaluations] == [0, 2, 4, 6]
    first, last = evaluations[0], evaluations[-1]
    for entry in evaluations:
        assert entry["eval_perplexity"] == pytest.approx(math.exp(entry["eval_loss"]))
        assert entry["eval_unigram_loss"] == first["eval_unigram_loss"]
    for number in (first["eval_loss"], last["eval_loss"], first["eval_unigram_loss"]):
        assert f"{number:.4f}" in out
    assert "tokens/s in training" in out
    assert "guesses:" in out

    results = json.loads(Path("run/all_results.json").read_text())
    assert results["eval_loss"] == last["eval_loss"]
    assert results["train_tokens_per_second"] > 0

    with open("run/loss_curve.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == [str(step) for step in range(7)]
    assert float(rows[6]["eval_loss"]) == last["eval_loss"]
    with Image.open("run/loss_curve.png") as picture:
        picture.verify()

    card = Path("run/README.md").read_text()
    assert ModelCard(card).data.pipeline_tag == "fill-mask"
    assert f"{last['eval_loss']:.4f}" in card
    assert "Text files: text.txt." in card
    # The fields of the mechanism itself.
    assert "| feature_map | relu |" in card
    assert str(Path.cwd()) not in card


@pytest.mark.slow
def test_the_saved_model_gives_the_reported_evaluation_loss_in_a_new_process(settings):
    MLM.main([*settings, "--output_dir", "run"])
    reported = json.loads(Path("run/eval_results.json").read_text())["eval_loss"]
    code = """
import datasets, torch, hf_linear_attn
from transformers import AutoModelForMaskedLM, AutoTokenizer
from hf_linear_attn.training.arguments import DataArguments, MaskingArguments
from hf_linear_attn.training.masked_lm_data import prepare_masked_lm
datasets.config.HF_DATASETS_CACHE = "cache"
args = DataArguments(train_file="text.txt", block_size=16, validation_fraction=0.2)
data = prepare_masked_lm(args, MaskingArguments(), "run", 261, 16, seed=42)
model = AutoModelForMaskedLM.from_pretrained("run").eval()
nll = count = 0
for row in data.evaluation:
    ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
    with torch.no_grad():
        logits = model(ids).logits.double()
    nll += torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum").item()
    count += int((labels != -100).sum())
print(nll / count)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert float(found.stdout.split()[-1]) == pytest.approx(reported, abs=1e-6)


def test_two_runs_of_one_seed_are_equal_and_another_seed_is_not(settings):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        MLM.main([*settings, "--output_dir", name, "--seed", seed, "--save_strategy", "no"])
    assert same(weights("a"), weights("b"))
    assert not same(weights("a"), weights("c"))


def strip(entries):
    clock = ("runtime", "per_second", "flos")
    return [
        {k: v for k, v in entry.items() if not any(word in k for word in clock)}
        for entry in entries
        if "train_runtime" not in entry
    ]


def interrupt(run: Path, last_checkpoint: str) -> None:
    """Take away what a run writes after its checkpoint of step 3, as a kill would."""
    for path in run.iterdir():
        if path.name not in ("run.yaml", "data.json", last_checkpoint):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param([], id="steps"),
        pytest.param(
            ["--save_strategy", "epoch", "--max_train_examples", "12"],
            id="epoch",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--masking", "word", "--dataloader_num_workers", "2"],
            id="words-workers",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--masking", "span", "--data_format", "lines"],
            id="spans-padded-lines",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_b36_an_interrupted_run_goes_on_bit_for_bit(settings, capsys, extra):
    command = [*settings, *extra, "--config_overrides", "hidden_dropout_prob=0.1"]
    MLM.main([*command, "--output_dir", "whole"])
    shutil.copytree("whole", "again")
    interrupt(Path("again"), "checkpoint-3")
    capsys.readouterr()
    MLM.main([*command, "--output_dir", "again"])
    assert "Going on from again/checkpoint-3" in capsys.readouterr().out
    assert same(weights("again"), weights("whole"))
    assert strip(history("again")) == strip(history("whole"))
    losses = [entry["loss"] for entry in history("whole") if "loss" in entry]
    assert len(losses) == 6


def test_a_run_killed_after_its_last_step_is_completed_from_the_checkpoint(settings):
    MLM.main([*settings, "--output_dir", "whole"])
    shutil.copytree("whole", "again")
    interrupt(Path("again"), "checkpoint-6")
    MLM.main([*settings, "--output_dir", "again"])
    assert same(weights("again"), weights("whole"))
    names = {path.name for path in Path("again").iterdir()}
    assert names >= {"README.md", "loss_curve.png", "trainer_state.json", "all_results.json"}


def test_a_finished_run_started_again_is_left_alone(settings, capsys):
    MLM.main([*settings, "--output_dir", "run"])
    weights_before = Path("run/model.safetensors").read_bytes()
    before = snapshot(Path("run"))
    capsys.readouterr()
    MLM.main([*settings, "--output_dir", "run"])
    out = capsys.readouterr().out
    assert "finished; nothing was changed" in out
    assert "--max_steps 12" in out
    assert snapshot(Path("run")) == before
    Path("run/model.safetensors").write_bytes(b"")
    MLM.main([*settings, "--output_dir", "run"])
    told = "But run/model.safetensors is damaged or cut off: delete run/trainer_state.json, and"
    assert told in capsys.readouterr().out
    Path("run/trainer_state.json").unlink()
    MLM.main([*settings, "--output_dir", "run"])
    assert Path("run/model.safetensors").read_bytes() == weights_before


def proposed(out: str, purpose: str) -> list[str]:
    """The arguments of the command printed under a heading."""
    (line,) = re.findall(rf"^# {purpose}.*\n(.*)$", out, flags=re.MULTILINE)
    words = shlex.split(line)
    assert words[:2] == ["accelerate", "launch"]
    assert Path(words[2]).resolve() == RECIPE
    return words[3:]


@pytest.mark.slow
def test_the_commands_to_run_next_work(settings, capsys, monkeypatch):
    monkeypatch.setattr(MLM, "RECIPE", os.path.relpath(RECIPE))
    MLM.main([*settings, "--output_dir", "run"])
    out = capsys.readouterr().out
    MLM.main(proposed(out, "go on after an interruption"))
    assert "finished" in capsys.readouterr().out
    MLM.main(proposed(out, "train longer"))
    assert "Going on from run/checkpoint-6" in capsys.readouterr().out
    assert [e["step"] for e in history("run") if "loss" in e] == list(range(1, 13))
    MLM.main(proposed(out, "the same run with another attention"))
    config = json.loads(Path("run-transnormer/config.json").read_text())
    assert config["model_type"] == "transnormer"


@pytest.mark.parametrize("attention", ["linear_transformer", "softmax", "transnormer", "nystrom"])
def test_the_other_attentions_train(settings, attention):
    MLM.main([*settings, "--output_dir", "run", "--attention", attention])
    losses = [entry["eval_loss"] for entry in history("run") if "eval_loss" in entry]
    assert losses[-1] < losses[0]


def merges(folder: str) -> dict[str, int]:
    return AutoTokenizer.from_pretrained(folder).get_vocab()


def test_a_saved_model_is_trained_further_with_its_tokenizer(settings):
    MLM.main([*settings, "--output_dir", "first", "--vocab_size", "280"])
    assert len(merges("first")) == 280
    MLM.main([*settings, "--output_dir", "second", "--model_name_or_path", "first"])
    start = history("second")[0]["eval_loss"]
    assert start == pytest.approx(history("first")[-2]["eval_loss"], abs=1e-6)
    assert merges("second") == merges("first")


def test_a_run_that_goes_on_keeps_its_tokenizer(settings, monkeypatch):
    command = [*settings, "--output_dir", "run", "--vocab_size", "280"]
    MLM.main(command)
    before = merges("run")
    interrupt(Path("run"), "checkpoint-3")

    def train(*_):
        raise AssertionError("a tokenizer was trained")

    monkeypatch.setattr(tokenizer, "_train_bytes", train)
    MLM.main(command)
    assert merges("run") == before


def test_data_given_as_jsonl_with_evaluation_text_of_its_own(settings, tmp_path):
    for name, word in (("train", "spam"), ("valid", "eggs")):
        lines = [json.dumps({"body": f"{word} and ham {i}"}) for i in range(30)]
        Path(f"{name}.jsonl").write_text("\n".join(lines))
    MLM.main(
        [
            *settings, "--output_dir", "run", "--train_file", "train.jsonl",
            "--validation_file", "valid.jsonl", "--text_column", "body",
            "--data_format", "documents", "--eval_mlm_probability", "0.5",
        ]
    )  # fmt: skip
    assert history("run")[0]["eval_loss"] > 0


def test_a_stream_is_trained_on_for_more_than_one_pass(settings):
    lines = [json.dumps({"text": f"one two three {i}"}) for i in range(9)]
    Path("train.jsonl").write_text("\n".join(lines))
    MLM.main(
        [
            *settings, "--output_dir", "run", "--train_file", "train.jsonl", "--streaming",
            "--validation_file", "train.jsonl", "--data_format", "documents",
        ]
    )  # fmt: skip
    assert [entry["step"] for entry in history("run") if "loss" in entry] == list(range(1, 7))


def test_a_run_by_epochs_evaluates_at_its_end(settings):
    MLM.main(
        [
            *settings, "--output_dir", "run", "--max_steps", "-1", "--num_train_epochs", "1",
            "--eval_strategy", "no", "--max_train_examples", "8",
        ]
    )  # fmt: skip
    evaluations = [entry["step"] for entry in history("run") if "eval_loss" in entry]
    assert evaluations == [0, 2]


@pytest.fixture
def fails(fails_with):
    return lambda argv: fails_with(MLM.main, argv)


BAD_INPUT = [
    pytest.param(["--attention", "cosfomer"], "did you mean 'cosformer'", id="attention"),
    pytest.param(["--config_overrides", "num_attention_heads=3"], "does not divide", id="heads"),
    pytest.param(
        ["--config_overrides", "layer_attention=[cosformer, softmax]"],
        "layer_attention names 2 layers, num_hidden_layers is 1",
        id="layers",
    ),
    pytest.param(["--block_size", "32"], "block_size 32 is above", id="block-size"),
    pytest.param(["--config_overrides", "cos_horizon=8"], "cos_horizon of 8", id="horizon"),
    pytest.param(["--train_file", "none.txt"], "none.txt", id="missing-file"),
    pytest.param(["--train_file", "empty.txt"], "empty.txt", id="empty-file"),
    pytest.param(["--train_file", "binary.txt"], "binary.txt", id="binary-file"),
    pytest.param(["--max_stepz", "3"], "did you mean '--max_steps'", id="flag"),
    pytest.param(["--config", "typo.yaml"], "did you mean 'learning_rate'", id="yaml-key"),
    pytest.param(["--config", "none.yaml"], "none.yaml", id="missing-yaml"),
    pytest.param(["--config_overrides", "hiden_size=32"], "hidden_size", id="config-field"),
    pytest.param(["--max_steps", "0"], "max_steps is a positive number", id="no-steps"),
    pytest.param(["--max_steps", "many"], "max_steps", id="wrong-type"),
    pytest.param(["--masking", "words"], "token, word, span", id="masking"),
    pytest.param(["--tokenizer_name", "./none"], "none", id="tokenizer"),
    pytest.param(["--model_name_or_path", "./none"], "none", id="model"),
    pytest.param(["--label_smoothing_factor", "0.1"], "label_smoothing", id="label-smoothing"),
    pytest.param(["--output_dir", "text.txt"], "is a file", id="output-file"),
]


@pytest.mark.parametrize(("argv", "message"), BAD_INPUT)
def test_bad_input_is_one_line_and_changes_nothing(settings, tmp_path, fails, argv, message):
    Path("empty.txt").write_text("")
    Path("binary.txt").write_bytes(b"\x00\x01\x02text")
    Path("typo.yaml").write_text("lerning_rate: 1e-3\n")
    before = snapshot(tmp_path)
    if "--output_dir" not in argv:
        argv = [*argv, "--output_dir", "run"]
    assert message in fails([*settings, *argv])
    assert not Path("run").exists()
    after = snapshot(tmp_path)
    assert {k: v for k, v in after.items() if "/cache/" not in k} == before


@pytest.mark.parametrize("damage", ["foreign", "another-run", "corrupt-checkpoint"])
def test_a_folder_that_cannot_be_used_is_left_alone(settings, fails, damage):
    if damage == "foreign":
        Path("run").mkdir()
        Path("run/notes.md").write_text("mine")
        extra, message = [], "not empty"
    else:
        MLM.main([*settings, "--output_dir", "run"])
        extra, message = ["--learning_rate", "5e-3"], "belongs to another run"
    if damage == "corrupt-checkpoint":
        interrupt(Path("run"), "checkpoint-6")
        file = Path("run/checkpoint-6/model.safetensors")
        file.write_bytes(file.read_bytes()[:100])
        extra, message = [], "checkpoint-6/model.safetensors is damaged or cut off"
    before = snapshot(Path("run"))
    assert message in fails([*settings, "--output_dir", "run", *extra])
    assert snapshot(Path("run")) == before


def test_debug_shows_the_traceback(settings):
    with pytest.raises(ValueError, match="did you mean 'cosformer'"):
        run_program(MLM.main, [*settings, "--attention", "cosfomer", "--debug"])
