"""Shipped configs of the causal-LM recipe: accepted by every check, commented, of their size."""

from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from hf_linear_attn.training.causal_lm_arguments import CausalLMArguments
from hf_linear_attn.training.model_setup import build_config, check_block_size
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import check_training_arguments
from tests.recipes.mlm_recipe import ROOT, load_recipe
from tests.recipes.test_mlm import history

CLM = load_recipe("clm")
FOLDER = ROOT / "recipes" / "configs" / "clm"
FILES = sorted(FOLDER.glob("*.yaml"))
PRESETS = ["cosformer_alm_wt103", "tnn_alm_wt103", "transnormer_alm_wt103"]
OPTIMISER = (
    "optim", "learning_rate", "lr_scheduler_type", "warmup_steps", "max_steps", "adam_beta1",
    "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "per_device_train_batch_size",
    "gradient_accumulation_steps",
)  # fmt: skip


def parse(name, *argv) -> CausalLMArguments:
    parser = RecipeParser(tuple(CausalLMArguments.__annotations__.values()))
    file = str(FOLDER / f"{name}.yaml")
    return CausalLMArguments(*parser.parse_recipe(["--config", file, *argv]))


def test_every_preset_is_there():
    assert [file.stem for file in FILES] == sorted([*PRESETS, "tiny-cpu"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_config_is_accepted_by_every_check(file):
    args = parse(file.stem)
    check_training_arguments(args.training)
    args.task.check_with(args.data)
    check_block_size(build_config(args.model).settle(is_decoder=True), args.data.block_size)
    assert args.training.report_to == []
    assert args.training.ddp_find_unused_parameters is False


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_every_field_of_the_optimiser(name):
    given = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert set(OPTIMISER) <= given.keys()
    args = parse(name)
    # 128 blocks of 512 tokens on eight devices.
    batch = args.training.per_device_train_batch_size * args.training.gradient_accumulation_steps
    assert (8 * batch, args.data.block_size) == (128, 512)


def test_tnns_setting_has_the_size_of_the_published_model():
    args = parse("tnn_alm_wt103")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(build_config(args.model))
    # The table says 44.65 million.
    assert model.num_parameters() == pytest.approx(44.65e6, rel=2e-3)
    assert model.config.layer_attention == ["transnormer_diag"] * 3 + ["transnormer_norm"] * 3


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_runs_on_a_cpu_at_reduced_size(name):
    words = ["one", "two", "three", "four", "five"]
    text = "\n".join(" ".join(words[(i + j * j) % 5] for j in range(9)) for i in range(60))
    for file in ("train.txt", "valid.txt"):
        Path(file).write_text(f" = Title = \n\n {text}\n")
    small = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64"
    CLM.main(
        [
            "--config", str(FOLDER / f"{name}.yaml"), "--train_file", "train.txt",
            "--validation_file", "valid.txt", "--output_dir", "run", "--use_cpu", "--max_steps",
            "2", "--config_overrides", f"{small},vocab_size=300", "--tokenizer_name", "null",
            "--vocab_size", "280", "--block_size", "64", "--preprocessing_num_workers", "null",
            "--dataloader_num_workers", "0", "--disable_tqdm", "true", "--save_steps", "2",
        ]
    )  # fmt: skip
    assert [e["step"] for e in history("run") if "eval_loss" in e] == [0, 2]
