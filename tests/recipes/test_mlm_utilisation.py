"""A run logs its share of the peak that it is told."""

import json
from pathlib import Path

import pytest

from tests.recipes.mlm_recipe import MLM


def history():
    return json.loads(Path("run/trainer_state.json").read_text())["log_history"]


def test_the_share_of_the_peak_is_logged_and_the_peak_may_change(settings):
    arguments = [*settings, "--output_dir", "run", "--max_steps", "3"]
    MLM.main([*arguments, "--peak_tflops", "0.01"])
    shares = [entry["mfu"] for entry in history() if "loss" in entry]
    assert len(shares) == 3
    assert all(0 < share < 100 for share in shares)
    assert "mfu" in Path("run/loss_curve.csv").read_text().splitlines()[0]
    MLM.main([*arguments[:-1], "4"])
    assert ["mfu" in entry for entry in history() if "loss" in entry] == [True] * 3 + [False]


def test_a_peak_that_is_none_is_refused_before_anything_is_written(settings):
    with pytest.raises(ValueError, match="peak_tflops"):
        MLM.main([*settings, "--output_dir", "run", "--peak_tflops", "-1"])
    assert not Path("run").exists()
