"""The configs of the masked-LM recipe: they are read, explained, and as large as they say."""

from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForMaskedLM, TrainingArguments

from hf_linear_attn.training.arguments import DataArguments, MaskingArguments, ModelArguments
from hf_linear_attn.training.model_setup import build_config, check_block_size
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import check_training_arguments
from tests.recipes.mlm_recipe import MLM

FOLDER = Path(__file__).parents[2] / "recipes" / "configs" / "mlm"
FILES = sorted(FOLDER.glob("*.yaml"))
TYPES = (ModelArguments, DataArguments, MaskingArguments, TrainingArguments)
ROBERTAS = ["cosformer", "linear_transformer", "softmax"]
BASES = [*ROBERTAS, "transnormer", "nystrom"]


def test_all_configs_are_there():
    assert {file.name for file in FILES} == {
        "tiny-cpu.yaml", "small-cpu.yaml", *(f"{b}-base.yaml" for b in BASES),
    }  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_config_is_accepted_by_every_check(file):
    model, data, _, training = RecipeParser(TYPES).parse_recipe(["--config", str(file)])
    check_training_arguments(training, streaming=data.streaming)
    check_block_size(build_config(model), data.block_size)
    assert training.report_to == []
    assert training.ddp_find_unused_parameters is False


@pytest.mark.parametrize("attention", ROBERTAS)
def test_a_base_model_has_robertas_size_and_optimiser(attention):
    file = FOLDER / f"{attention}-base.yaml"
    model, data, masking, training = RecipeParser(TYPES).parse_recipe(["--config", str(file)])
    with torch.device("meta"):
        built = AutoModelForMaskedLM.from_config(build_config(model))
    assert model.attention == attention
    # RoBERTa-base has 124.7 million, 2 of its 514 position rows are unused and 1 type row is none.
    assert built.num_parameters() == 124_697_433 - 3 * 768
    assert data.block_size == 512
    assert masking.mlm_probability == 0.15
    assert training.learning_rate == 6e-4
    assert (training.adam_beta1, training.adam_beta2) == (0.9, 0.98)
    assert training.adam_epsilon == 1e-6
    assert training.weight_decay == 0.01
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps
    assert 8 * batch == 8192


def test_the_base_configs_differ_in_what_they_must_only():
    loaded = [yaml.safe_load((FOLDER / f"{b}-base.yaml").read_text()) for b in ROBERTAS]
    dropout = loaded[2]["model"].pop("attention_probs_dropout_prob")
    assert dropout == 0.1
    for config in loaded:
        del config["attention"], config["output_dir"]
    assert loaded[0] == loaded[1] == loaded[2]


def test_transnormer_has_the_settings_of_its_authors_script():
    """RoBERTa-base's size, 512 sequences a batch, 5e-4, 3,000 of 50,000 updates, w = 64."""
    file = FOLDER / "transnormer-base.yaml"
    model, data, _, training = RecipeParser(TYPES).parse_recipe(["--config", str(file)])
    config = build_config(model)
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (
        768, 12, 12,
    )  # fmt: skip
    assert config.intermediate_size == int(8 / 3 * 768)
    assert config.block_size == 64
    assert config.attention_names == ["transnormer_diag"] * 6 + ["transnormer_norm"] * 6
    assert config.settle(is_decoder=False).norm_position == "post"
    assert (config.norm_type, config.mlp_type, config.glu_act) == ("srmsnorm", "glu", "identity")
    assert config.position_embedding_type == "lrpe"
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert (training.learning_rate, training.warmup_steps, training.max_steps) == (
        5e-4, 3000, 50000,
    )  # fmt: skip
    assert (training.weight_decay, training.adam_epsilon) == (0.01, 1e-6)
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps
    assert (8 * batch, data.block_size) == (512, 512)


def test_nystrom_has_the_settings_of_its_authors_code():
    """512 tokens, 256 sequences a batch, 1e-4, 1 % warm-up of 500,000, m = 64, kernel of 33."""
    file = FOLDER / "nystrom-base.yaml"
    model, data, _, training = RecipeParser(TYPES).parse_recipe(["--config", str(file)])
    config = build_config(model)
    assert (config.num_landmarks, config.pinv_iterations, config.conv_kernel_size) == (64, 6, 33)
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (768, 12, 50265)
    assert (training.learning_rate, training.warmup_steps, training.max_steps) == (
        1e-4, 5000, 500000,
    )  # fmt: skip
    assert (training.weight_decay, training.adam_epsilon) == (0.01, 1e-6)
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps
    assert (8 * batch, data.block_size) == (256, 512)


@pytest.mark.parametrize("attention", BASES)
def test_a_base_config_runs_on_a_cpu_at_reduced_size(settings, attention):
    small = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,"
    MLM.main(
        [
            "--config", str(FOLDER / f"{attention}-base.yaml"), "--train_file", "text.txt",
            "--output_dir", "run", "--max_steps", "2", "--use_cpu", "--disable_tqdm",
            "--config_overrides", small + "max_position_embeddings=32,vocab_size=300",
            "--vocab_size", "300", "--block_size", "32", "--validation_fraction", "0.2",
            "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2",
            "--preprocessing_num_workers", "null", "--dataloader_num_workers", "0",
        ]
    )  # fmt: skip
    assert Path("run/model.safetensors").is_file()
