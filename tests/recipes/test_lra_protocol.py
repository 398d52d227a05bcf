"""What is not as published is listed, field by field; what is, is not."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from hf_linear_attn.training.lra.data import max_length
from hf_linear_attn.training.lra.model_setup import build_lra_config
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.protocol import differences
from hf_linear_attn.training.lra.suite import read_runs
from hf_linear_attn.training.lra.tasks import TASKS
from tests.recipes.lra_recipe import CONFIGS, LRA, SETTINGS

KINDS = [(preset.name, task) for preset in PRESETS.values() for task in preset.tasks]


def listed(preset, task, *arguments, steps=None, test=None):
    """Of a run with these arguments, on as many examples as are published."""
    argv = ["--preset", preset, "--task", task, "--data_dir", "data", "--use_cpu", *arguments]
    (args,), _ = read_runs(argv, CONFIGS)
    kind, protocol = TASKS[task], PRESETS[preset]
    scale = protocol.tasks[task]
    length = max_length(args.lra, kind)
    data = SimpleNamespace(
        task=kind, max_length=length, rule=args.lra.over_long or ("cut" if kind.cut else "refuse"),
        splits={"train": range(scale.train), "validation": range(scale.validation),
                "test": range(scale.test if test is None else test)},
    )  # fmt: skip
    config = build_lra_config(args.model, protocol, kind, length)
    return differences(args, config, data, steps or args.training.max_steps, CONFIGS)


@pytest.mark.parametrize(("preset", "task"), KINDS)
def test_the_presets_own_run_differs_in_nothing(preset, task):
    assert listed(preset, task) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--learning_rate", "1e-3"], "learning_rate 0.001 instead of 0.00158114"),
        (["--weight_decay", "0"], "weight_decay 0 instead of 0.1"),
        (["--adam_beta2", "0.999"], "adam_beta2 0.999 instead of 0.98"),
        (["--optim", "sgd"], "optim sgd instead of adamw_torch"),
        (["--max_grad_norm", "1"], "max_grad_norm 1 instead of 0"),
        (["--warmup_steps", "10"], "warmup_steps 10 instead of 1,000"),
        (["--lr_scheduler_type", "cosine"], "lr_scheduler_type cosine instead of inverse_sqrt"),
        (["--lr_schedule", "cosine_cycle"], "lr_schedule cosine_cycle instead of None"),
        (["--max_steps", "9"], "optimiser steps 9 instead of 5,000"),
        (["--gradient_accumulation_steps", "2"], "examples in a step 64 instead of 32"),
        (["--bf16"], "bf16 True instead of False"),
        (["--max_length", "900"], "max_length 900 instead of 2,000"),
        (["--over_long", "drop"], "over_long drop instead of refuse"),
        (["--config_overrides", "hidden_dropout_prob=0"], "hidden_dropout_prob 0 instead of 0.1"),
        (["--config_overrides", "num_attention_heads=4"], "num_attention_heads 4 instead of 8"),
        (["--config_overrides", "norm_position=post"], "norm_position post instead of pre"),
    ],
)  # fmt: skip
def test_one_changed_field_is_one_difference(arguments, text):
    assert listed("official", "listops", *arguments) == [text]


def test_fewer_test_examples_are_a_difference():
    assert listed("official", "image", test=20) == ["test examples 20 instead of 10,000"]


def test_pathfinders_shape_goes_with_the_attention():
    linear = listed("official", "pathfinder", "--attention", "softmax")
    assert "num_hidden_layers 1 instead of 4" in linear
    assert "hidden_size 128 instead of 32" in linear
    softmax = ["--config", str(CONFIGS / "official" / "pathfinder-softmax.yaml")]
    assert listed("official", "pathfinder", *softmax) == []
    other = listed("official", "pathfinder", *softmax, "--attention", "cosformer")
    shape = {"hidden_size": (32, 128), "num_hidden_layers": (4, 1), "num_attention_heads": (4, 2),
             "head_dim": (4, 32), "intermediate_size": (32, 128)}  # fmt: skip
    assert other == [f"{name} {a} instead of {b}" for name, (a, b) in shape.items()]


def test_a_test_on_some_of_the_examples_is_said_everywhere(tmp_path, capsys):
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SETTINGS))
    LRA.main(["--config", "small.yaml", "--output_dir", "run", "--max_test_examples", "20"])
    assert "ListOps on 20 of 30 test examples" in capsys.readouterr().out
    card = Path("run/README.md").read_text()
    assert "was tested once, on 20 of 30 test examples" in card
    assert "- Not as published: test examples 20 instead of 2,000." in card
    assert "- Not as published: examples drawn here instead of the released ones." in card
    stored = json.loads(Path("run/all_results.json").read_text())
    assert (stored["test_examples"], stored["test_examples_there"]) == (20, 30)
