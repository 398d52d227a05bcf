"""The causal-LM recipe: what a run leaves behind, how it goes on, and that its words are true."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import hf_linear_attn as hla
from tests.recipes.mlm_recipe import ROOT, load_recipe
from tests.recipes.test_mlm import history, interrupt, same, strip

CLM = load_recipe("clm")


def weights(folder) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


@pytest.fixture
def fails(fails_with):
    return lambda argv: fails_with(CLM.main, argv)


def measured_again(folder) -> tuple[float, int]:
    """The loss of a saved model on the evaluation text of `settings`, token by token."""
    from hf_linear_attn.training.arguments import DataArguments
    from hf_linear_attn.training.causal_lm_arguments import CausalLMTaskArguments
    from hf_linear_attn.training.causal_lm_data import prepare_causal_lm

    data = DataArguments(train_file=["text.txt"], block_size=16, validation_fraction=0.2)
    data = prepare_causal_lm(data, CausalLMTaskArguments(), str(folder), 261, 16, 42)
    model = AutoModelForCausalLM.from_pretrained(folder)
    total, count = 0.0, 0
    with torch.no_grad():
        for row in data.evaluation:
            ids = torch.tensor([row["input_ids"]])
            log_p = model(input_ids=ids, use_cache=False).logits.double().log_softmax(-1)[0]
            for at in range(1, ids.shape[1]):
                total -= float(log_p[at - 1, ids[0, at]])
                count += 1
    return total / count, count


def test_a_run_leaves_everything_behind_and_says_the_truth(settings, capsys):
    CLM.main([*settings, "--output_dir", "run", "--prompts", "one two", "--max_new_tokens", "5"])
    out = capsys.readouterr().out
    evaluations = [e for e in history("run") if "eval_loss" in e]
    assert [e["step"] for e in evaluations] == [0, 2, 4, 6]
    after = evaluations[-1]
    assert after["eval_perplexity"] == pytest.approx(math.exp(after["eval_loss"]))
    loss, count = measured_again("run")
    assert after["eval_loss"] == pytest.approx(loss, rel=1e-5)
    assert f"{count:,} tokens evaluated" in " ".join(out.split())
    assert f"{after['eval_loss']:.4f}" in out
    assert f"{after['eval_unigram_loss']:.4f}" in out
    assert "What the model goes on with" in out
    assert "  one two" in out
    card = ModelCard(Path("run/README.md").read_text(encoding="utf-8"))
    assert card.data.pipeline_tag == "text-generation"
    assert "AutoModelForCausalLM" in card.text
    for name in ("loss_curve.png", "loss_curve.csv", "tokenizer.json", "all_results.json"):
        assert Path("run", name).is_file()
    config = json.loads(Path("run/config.json").read_text())
    assert config["architectures"] == ["CosformerForCausalLM"]
    assert config["is_decoder"] is True


def test_the_saved_model_goes_on_with_a_prompt_through_the_pipeline(settings):
    CLM.main([*settings, "--output_dir", "run", "--attention", "transnormer"])
    generate = pipeline("text-generation", model="run")
    (answer,) = generate("one two", max_new_tokens=6, do_sample=False)
    assert answer["generated_text"].startswith("one two")
    tokenizer = AutoTokenizer.from_pretrained("run")
    assert tokenizer("one").input_ids[0] == tokenizer.bos_token_id
    assert tokenizer("one").input_ids[-1] != tokenizer.eos_token_id


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
            ["--keep_documents_apart", "--dataloader_num_workers", "2", "--stride", "7"],
            id="apart-workers-windows",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--data_format", "lines", "--attention", "transnormer"],
            id="padded-lines",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_b36_an_interrupted_run_goes_on_bit_for_bit(settings, capsys, extra):
    command = [*settings, *extra, "--config_overrides", "hidden_dropout_prob=0.1"]
    CLM.main([*command, "--output_dir", "whole"])
    shutil.copytree("whole", "again")
    interrupt(Path("again"), "checkpoint-3")
    capsys.readouterr()
    CLM.main([*command, "--output_dir", "again"])
    assert "Going on from again/checkpoint-3" in capsys.readouterr().out
    assert same(weights("again"), weights("whole"))
    assert strip(history("again")) == strip(history("whole"))


@pytest.mark.parametrize(
    "fields",
    [
        [],
        pytest.param(["--keep_documents_apart"], marks=pytest.mark.slow),
        pytest.param(["--data_format", "lines"], marks=pytest.mark.slow),
    ],
)
def test_b39_accumulation_equals_the_big_batch(settings, fields):
    # A first step, so that nothing but the order of additions can differ.
    no_dropout = ["--config_overrides", "hidden_dropout_prob=0"]
    command = [*settings, *fields, *no_dropout, "--max_steps", "1", "--max_grad_norm", "0"]
    for name, batch, accumulation in (("big", "8", "1"), ("small", "2", "4")):
        CLM.main(
            [
                *command, "--output_dir", name, "--per_device_train_batch_size", batch,
                "--gradient_accumulation_steps", accumulation, "--optim", "sgd",
            ]
        )  # fmt: skip
    big, small = (next(e for e in history(n) if "loss" in e) for n in ("big", "small"))
    assert big["loss"] == pytest.approx(small["loss"], rel=1e-5)
    assert big["grad_norm"] == pytest.approx(small["grad_norm"], rel=1e-4)


def test_continued_pretraining_keeps_model_and_tokenizer(settings):
    CLM.main([*settings, "--output_dir", "first", "--vocab_size", "280"])
    CLM.main([*settings, "--output_dir", "second", "--model_name_or_path", "first"])
    first, second = history("first"), history("second")
    assert second[0]["eval_loss"] == pytest.approx(
        [e for e in first if "eval_loss" in e][-1]["eval_loss"], rel=1e-6
    )


def test_a_finished_run_started_again_is_left_alone(settings, capsys):
    CLM.main([*settings, "--output_dir", "run"])
    before = {p: p.stat().st_mtime_ns for p in Path("run").rglob("*")}
    CLM.main([*settings, "--output_dir", "run"])
    assert {p: p.stat().st_mtime_ns for p in Path("run").rglob("*")} == before
    out = capsys.readouterr().out
    assert "finished; nothing was changed" in out
    assert "pipeline('text-generation'" in out


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def test_a_model_damaged_behind_its_finished_run_is_told_and_saved_again(settings, capsys):
    CLM.main([*settings, "--output_dir", "run"])
    sound = {}
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        file = Path("run", name)
        sound[file] = file.read_bytes()
        # A blank more, or a bit of the last weight: it can be read as before.
        file.write_bytes(sound[file] + b" " if name.endswith("json") else flipped(sound[file]))
        capsys.readouterr()
        CLM.main([*settings, "--output_dir", "run"])
        told = f"But {file} is not what was saved (it differs from checksums.json): delete"
        assert told in capsys.readouterr().out
        if name != "model.safetensors":
            file.write_bytes(sound[file])
    Path("run/trainer_state.json").unlink()
    CLM.main([*settings, "--output_dir", "run"])
    assert {file: file.read_bytes() for file in sound} == sound


@pytest.mark.slow
def test_a_smaller_stride_sees_more(settings):
    """After training on regular text, more context gives a better prediction."""
    losses = {}
    for stride in ("15", "3"):
        CLM.main(
            [
                *settings, "--output_dir", stride, "--stride", stride, "--max_steps", "150",
                "--learning_rate", "1e-2", "--save_strategy", "no", "--eval_strategy", "no",
                "--logging_steps", "50",
            ]
        )  # fmt: skip
        losses[stride] = [e for e in history(stride) if "eval_loss" in e][-1]["eval_loss"]
    assert same(weights("3"), weights("15"))
    assert losses["3"] < losses["15"] - 0.02


BAD_INPUT = [
    pytest.param(["--attention", "nystrom"], "causal", id="nystrom"),
    pytest.param(["--config_overrides", "is_decoder=false"], "is_decoder", id="encoder"),
    pytest.param(["--stride", "16"], "stride 16 would leave tokens out", id="stride"),
    pytest.param(
        ["--keep_documents_apart", "--data_format", "documents"],
        "keep_documents_apart is for data_format blocks",
        id="apart",
    ),
    pytest.param(["--label_smoothing_factor", "0.1"], "label_smoothing", id="label-smoothing"),
    pytest.param(["--prompts", "one two three four five six"], "the model takes 16", id="prompt"),
    pytest.param(["--train_file", "none.txt"], "none.txt", id="missing-file"),
    pytest.param(["--tokenizer_type", "words"], "did you mean 'word'", id="tokenizer-type"),
    pytest.param(["--block_size", "32"], "block_size 32 is above", id="block-size"),
    pytest.param(["--max_train_examples", "0"], "max_train_examples", id="no-examples"),
    pytest.param(["--mlm_probability", "0.2"], "unknown argument", id="masking"),
]


@pytest.mark.parametrize(("argv", "message"), BAD_INPUT)
def test_bad_input_is_one_line_before_training(settings, fails, argv, message):
    assert message in fails([*settings, "--output_dir", "run", *argv])
    assert not Path("run").exists()


@pytest.mark.parametrize("recipe", ["clm", "mlm"])
def test_a_model_of_the_other_kind_is_refused(settings, fails_with, recipe):
    config = hla.CosformerConfig(
        vocab_size=261, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=16,
    )  # fmt: skip
    other = hla.CosformerForMaskedLM if recipe == "clm" else hla.CosformerForCausalLM
    other(config).save_pretrained("other")
    main = CLM.main if recipe == "clm" else load_recipe("mlm").main
    argv = [*settings, "--output_dir", "run", "--model_name_or_path", "other"]
    kind = "encoders" if recipe == "clm" else "decoders"
    assert f"model_name_or_path other is one of the {kind}" in fails_with(main, argv)


def test_a_saved_model_goes_on_without_a_config_file(settings, monkeypatch):
    """The model's fields in the recipe's default file are those of another model."""
    monkeypatch.setattr(
        CLM, "DEFAULT_CONFIG", ROOT / "recipes" / "configs" / "clm" / "tiny-cpu.yaml"
    )
    CLM.main([*settings, "--output_dir", "first"])
    words = "--train_file text.txt --block_size 16 --max_steps 2 --eval_steps 1 --disable_tqdm true"
    CLM.main([*words.split(), "--model_name_or_path", "first", "--output_dir", "second"])
    config = json.loads(Path("second/config.json").read_text())
    assert config["hidden_size"] == 32


def test_a_run_in_the_current_folder_has_a_name(settings, monkeypatch, capsys):
    Path("here").mkdir()
    files = [str(Path(name).absolute()) for name in ("config.yaml", "text.txt")]
    monkeypatch.chdir("here")
    CLM.main(["--config", files[0], "--train_file", files[1], "--output_dir", "."])
    assert ModelCard(Path("README.md").read_text(encoding="utf-8")).data.model_name == "here"
    assert "here-transnormer" in capsys.readouterr().out


def test_text_too_short_for_a_block_is_an_error_before_training(settings, fails):
    Path("short.txt").write_text("a\n\nb")
    for extra in ([], ["--keep_documents_apart"]):
        line = fails([*settings, "--train_file", "short.txt", "--output_dir", "run", *extra])
        assert "do not fill one block of 16" in line
    assert not Path("run").exists()
