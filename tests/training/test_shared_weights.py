"""Every recipe says to what builds its model whether the weights are shared among processes."""

from types import SimpleNamespace

import pytest

from hf_linear_attn.training import language_model_run, model_setup
from hf_linear_attn.training.glue import run as glue
from hf_linear_attn.training.lra import run as lra


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("recipe", ["language model", "glue", "lra"])
def test_a_recipe_says_whether_weights_are_shared(monkeypatch, recipe, shared):
    told = []
    monkeypatch.setattr(model_setup, "build_config", lambda *args, **fields: None)
    monkeypatch.setattr(model_setup, "build_model", lambda *args, shared: told.append(shared))
    monkeypatch.setattr(lra, "build_lra_model", lambda *args, shared: told.append(shared))
    for module in (language_model_run, glue, lra):
        monkeypatch.setattr(module, "shares_weights", lambda training: training == "zero3")
    task = SimpleNamespace(new_head=False)
    run = SimpleNamespace(
        training="zero3" if shared else "ddp",
        args=SimpleNamespace(model=None, task=task),
        model_args=None,
        data=SimpleNamespace(tokenizer=None, order=("0", "1")),
        auto_class=None,
        config=None,
    )
    kinds = {"language model": language_model_run.LanguageModelRun, "glue": glue.GlueRun}
    kinds["lra"] = lra.LraRun
    kinds[recipe].build_model(run)
    assert told == [shared]
