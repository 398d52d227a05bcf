"""The card says how to load the model, in two ways, and both run."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainingArguments

from hf_linear_attn.integrations.model_card import write_model_card
from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.lra.card import lra_card
from hf_linear_attn.training.lra.model_setup import build_lra_config, build_lra_model
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.results import LraResults
from hf_linear_attn.training.lra.tasks import TASKS
from tests.recipes.lra_recipe import SETTINGS


def card_of(task, length):
    kind, preset = TASKS[task], PRESETS["official"]
    args = ModelArguments(model=SETTINGS["model"])
    model = build_lra_model(args, build_lra_config(args, preset, kind, length))
    model.save_pretrained("run")
    data = SimpleNamespace(
        task=kind, splits={"validation": range(9)}, max_length=length, rule="cut",
        describe=lambda: ["Some examples."],
    )  # fmt: skip
    results = LraResults(
        task=task, preset="official", attention="cosformer", test_accuracy=0.5,
        best_validation_accuracy=0.5, best_step=4, chance_level=0.25, test_examples=20,
        test_examples_there=20, over_long_train=0, over_long_validation=0, over_long_test=0,
        over_long_rule="cut", parameters=7, steps=8, data="x", differences=[],
    )  # fmt: skip
    facts = lra_card(
        model, TrainingArguments("run", use_cpu=True, report_to="none"), data, results,
        schedule=None, tokens_per_second=None, started_from=None,
    )  # fmt: skip
    return write_model_card(Path("run"), facts).read_text()


@pytest.mark.parametrize("task", TASKS)
def test_both_ways_to_use_the_model_run(task, capsys):
    text = card_of(task, {"listops": 8, "text": 9, "retrieval": 9, "pathx": 16384}.get(task, 1024))
    first, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    loaded: dict = {}
    exec(first, loaded)
    assert loaded["model"].config.task == task
    used: dict = {}
    exec(second, used)
    classes = len(TASKS[task].classes)
    assert used["logits"].shape == (1, classes)
    assert torch.isfinite(used["logits"]).all()
    out = capsys.readouterr().out
    assert any(name in out for name in TASKS[task].classes)
    ids = used["ids"]
    if task == "retrieval":
        assert ids.shape == (1, 2, 9)
    if task in ("image", "pathfinder", "pathx"):
        assert ids.unique().numel() > 50
