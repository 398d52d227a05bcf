"""The configs of the Long Range Arena recipe: read, explained, and as published."""

import re

import pytest
import torch
import yaml

from hf_linear_attn.training.lra.arguments import LraRunArguments
from hf_linear_attn.training.lra.data import max_length
from hf_linear_attn.training.lra.model_setup import build_lra_config, build_lra_model
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.suite import read_runs
from hf_linear_attn.training.lra.tasks import TASKS
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import check_training_arguments
from tests.recipes.lra_recipe import CONFIGS

FILES = sorted(CONFIGS.rglob("*.yaml"))
KINDS = [(preset.name, task) for preset in PRESETS.values() for task in preset.tasks]


def read(preset, task):
    file = CONFIGS / preset / f"{task}.yaml"
    parser = RecipeParser(tuple(LraRunArguments.__annotations__.values()))
    return LraRunArguments(*parser.parse_recipe(["--config", str(file)]))


def test_all_configs_are_there():
    names = {str(file.relative_to(CONFIGS)) for file in FILES}
    assert names == {
        "tiny-cpu.yaml", "listops-short.yaml", "smoke.yaml", "official/pathfinder-softmax.yaml",
        "nystromformer/nystrom-64.yaml", *(f"{preset}/{task}.yaml" for preset, task in KINDS),
    }  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_field_has_a_comment_above_it(file):
    lines = file.read_text().splitlines()
    fields = [i for i, line in enumerate(lines) if re.match(r" *\w+:", line)]
    assert fields
    for i in fields:
        assert re.match(r" *# [^-]", lines[i - 1]), lines[i]


@pytest.mark.parametrize(("preset", "task"), KINDS)
def test_a_preset_has_the_published_scale_and_every_optimiser_field(preset, task):
    args = read(preset, task)
    check_training_arguments(args.training)
    scale, training = PRESETS[preset].tasks[task], args.training
    assert (args.lra.task, args.lra.preset) == (task, preset)
    assert training.max_steps == scale.steps
    assert training.per_device_train_batch_size == scale.batch
    assert max_length(args.lra, TASKS[task]) == scale.length
    given = yaml.safe_load((CONFIGS / preset / f"{task}.yaml").read_text())
    assert given.keys() >= {
        "optim", "learning_rate", "lr_schedule", "warmup_steps", "max_steps", "adam_beta1",
        "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "bf16", "seed",
        "per_device_train_batch_size", "gradient_accumulation_steps", "load_best_model_at_end",
    }  # fmt: skip
    assert training.load_best_model_at_end
    assert training.eval_steps == training.save_steps


@pytest.mark.parametrize(
    ("task", "peak", "warmup", "decay", "schedule"),
    [
        ("listops", 1.58e-3, 1000, 0.1, None), ("text", 5.6e-4, 8000, 0.1, None),
        ("retrieval", 5.6e-4, 8000, 0.1, None), ("image", 5e-4, 175, 0, "cosine_cycle"),
        ("pathfinder", 1e-3, 312, 0, "cosine_cycle"), ("pathx", 1e-3, 2500, 0, "cosine_cycle"),
    ],
)  # fmt: skip
def test_official_optimisers(task, peak, warmup, decay, schedule):
    args = read("official", task)
    training = args.training
    assert training.learning_rate == pytest.approx(peak, rel=0.01)
    assert training.warmup_steps == warmup
    assert training.weight_decay == decay
    assert args.lra.lr_schedule == schedule
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert training.max_grad_norm == (1 if task == "pathx" else 0)


def test_the_official_image_model_has_eight_heads():
    """Paper, configs and answers differ (google-research/long-range-arena#33): one head, 36 %."""
    model = read("official", "image").model.model
    assert (model["num_attention_heads"], model["head_dim"], model["hidden_size"]) == (8, 8, 128)
    assert model["hidden_dropout_prob"] == 0.3


def test_nystromformers_shape_and_optimiser_is_the_same_in_all_tasks():
    for task in PRESETS["nystromformer"].tasks:
        args = read("nystromformer", task)
        model, training = args.model.model, args.training
        assert (model["hidden_size"], model["num_attention_heads"], model["head_dim"]) == (
            64,
            2,
            32,
        )
        assert (model["num_hidden_layers"], model["intermediate_size"]) == (2, 128)
        assert (training.learning_rate, training.weight_decay) == (1e-4, 0)
        assert (training.adam_beta2, training.adam_epsilon) == (0.999, 1e-6)
        assert args.lra.lr_schedule == "one_cycle"


@pytest.mark.parametrize(("preset", "task"), KINDS)
def test_a_preset_builds_for_every_attention_it_can_take(preset, task):
    args = read(preset, task)
    for attention in ("cosformer", "softmax", "linear_transformer", "nystrom", "transnormer"):
        args.model.attention = attention
        length = max_length(args.lra, TASKS[task])
        config = build_lra_config(args.model, PRESETS[preset], TASKS[task], length)
        with torch.device("meta"):
            assert build_lra_model(args.model, config).num_parameters() > 1000


def test_overlays_go_over_the_presets_file():
    overlay = CONFIGS / "official" / "pathfinder-softmax.yaml"
    (args,), base = read_runs(["--config", str(overlay)], CONFIGS)
    assert base is None
    assert args.model.attention == "softmax"
    assert args.model.model["hidden_size"] == 32
    assert args.model.model["hidden_act"] == "gelu_pytorch_tanh"
    assert args.training.max_steps == 62_400
    overlay = CONFIGS / "nystromformer" / "nystrom-64.yaml"
    (args,), _ = read_runs(["--config", str(overlay), "--task", "text"], CONFIGS)
    assert args.model.model["num_landmarks"] == 64
    assert args.training.learning_rate == 1e-4


def test_without_arguments_it_is_the_tiny_run_and_with_a_task_the_presets():
    (args,), _ = read_runs([], CONFIGS)
    assert args.training.max_steps == 600
    (args,), _ = read_runs(["--max_steps", "5"], CONFIGS)
    assert (args.training.max_steps, args.lra.max_length) == (5, 30)
    (args,), _ = read_runs(["--task", "listops"], CONFIGS)
    assert (args.training.max_steps, args.lra.max_length) == (5_000, 2_000)


def test_the_smoke_run_has_every_task_of_the_preset():
    smoke = ["--config", str(CONFIGS / "smoke.yaml")]
    runs, base = read_runs(smoke, CONFIGS)
    assert [args.lra.task for args in runs] == list(TASKS)
    assert {args.training.max_steps for args in runs} == {4}
    assert str(base) == "runs/lra-smoke"
    runs, _ = read_runs([*smoke, "--preset", "nystromformer"], CONFIGS)
    assert [args.lra.task for args in runs] == list(PRESETS["nystromformer"].tasks)
    assert all(args.lra.lr_schedule == "one_cycle" for args in runs)
