"""Recipes as a person starts them: `accelerate launch`, without a config of one's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import deprecations
from tests.recipes.mlm_recipe import RECIPE, ROOT

ACCELERATE = str(Path(sys.executable).with_name("accelerate"))


def run(*command: str, timeout: int) -> subprocess.CompletedProcess:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HF_DATASETS_CACHE": str(Path.cwd() / "cache"),
        "COLUMNS": "200",
    }
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "steps", "below", "said"),
    [("mlm", 200, 0.2, "guesses:"), ("clm", 150, 0.3, "What the model goes on with")],
)
def test_the_default_run_of_a_language_model_beats_the_unigram_model(recipe, steps, below, said):
    """The default run in fewer steps: they take the loss as far as is asked for here."""
    program = str(ROOT / "recipes" / f"{recipe}.py")
    shorter = ("--disable_tqdm", "--max_steps", str(steps))
    done = run(ACCELERATE, "launch", program, *shorter, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert deprecations.written(done.stderr) == []
    folder = Path(f"runs/{recipe}-tiny-cpu")
    results = json.loads((folder / "all_results.json").read_text())
    assert results["eval_loss"] <= results["eval_unigram_loss"] - below
    for name in ("loss_curve.png", "loss_curve.csv", "README.md", "model.safetensors"):
        assert (folder / name).is_file()
    assert f"{results['eval_loss']:.4f}" in done.stdout
    assert said in done.stdout


@pytest.mark.slow
def test_a_mistake_is_one_line_and_exit_code_two():
    done = run(sys.executable, str(RECIPE), "--attention", "cosfomer", timeout=300)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "did you mean 'cosformer'" in done.stderr
    assert not Path("runs").exists()


@pytest.mark.slow
def test_the_launcher_passes_the_mistake_on():
    # The launcher adds a traceback of its own, of its call of the recipe.
    done = run(ACCELERATE, "launch", str(RECIPE), "--max_stepz", "3", timeout=300)
    assert done.returncode != 0
    assert "error: unknown argument '--max_stepz'; did you mean '--max_steps'?" in done.stderr
    assert not Path("runs").exists()
