"""Two processes as a person starts them: `accelerate launch` with the recipes' own files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import deprecations, processes
from tests.recipes.long_run import history, write_config
from tests.recipes.mlm_recipe import RECIPE, ROOT
from tests.recipes.test_engines import refusal

ACCELERATE = str(Path(sys.executable).with_name("accelerate"))
pytestmark = pytest.mark.slow


def launch(engine: str, folder: Path, *more: str) -> subprocess.CompletedProcess:
    """Run the recipe for 16 steps from the folder that holds recipes/, on two processes."""
    config = folder / "config.yaml"
    if not config.is_file():
        write_config(folder, output_dir=str(folder / "run"))
    settings = f"recipes/accelerate/{engine}.yaml"
    command = [ACCELERATE, "launch", "--config_file", settings, "--num_processes", "2"]
    command += ["--main_process_port", "0", str(RECIPE), "--config", str(config), *more]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_DATASETS_CACHE": str(folder / "cache"),
        "TORCH_EXTENSIONS_DIR": str(folder / "compiled"),
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "200",
    }
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_doors_of_ddp_and_zero_lead_to_the_same_losses(tmp_path):
    found = {}
    for engine, name in (("ddp-cpu", "ddp"), ("zero2", "zero2")):
        folder = tmp_path / engine
        folder.mkdir()
        done = launch(engine, folder, "--config_overrides", "hidden_dropout_prob=0")
        assert done.returncode == 0, done.stderr[-3000:]
        assert deprecations.written(done.stderr) == []
        assert done.stdout.count("Masked language modelling") == 1
        sealed = folder / "run" / "checkpoint-8"
        engine_file = json.loads((sealed / "engine.json").read_text())
        assert engine_file == {"name": name, "processes": 2}
        assert not (folder / "compiled").exists()
        found[name] = history(folder, "loss") | history(folder, "eval_loss")
    assert found["zero2"] == pytest.approx(found["ddp"], abs=1e-4)


def test_zero_that_would_become_another_is_refused_at_the_door(tmp_path):
    done = launch("zero2", tmp_path, "--use_cpu", "false")
    assert done.returncode != 0
    message = "the launcher has started 2 processes, but each of them"
    assert f"error: {message}" in done.stderr
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "compiled").exists()


def test_fsdp_that_would_become_another_is_refused_with_what_the_launcher_gives(tmp_path):
    argv = ["--config", str(write_config(tmp_path))]
    [[line]] = processes.run(refusal, argv, folder=tmp_path, engine="fsdp2")
    assert "FSDP needs GPUs and a launcher" in line
    assert not (tmp_path / "run").exists()


WITHOUT_DEEPSPEED = """
import importlib.machinery, importlib.metadata, runpy, sys

found = importlib.machinery.PathFinder.find_spec
named = importlib.metadata.Distribution.from_name.__func__

def find_spec(cls, name, *args, **kwargs):
    return None if name.split(".")[0] == "deepspeed" else found(name, *args, **kwargs)

def from_name(cls, name):
    if name == "deepspeed":
        raise importlib.metadata.PackageNotFoundError(name)
    return named(cls, name)

importlib.machinery.PathFinder.find_spec = classmethod(find_spec)
importlib.metadata.Distribution.from_name = classmethod(from_name)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_deepspeed_not_installed_is_one_line_with_its_extra(tmp_path):
    settings = str(ROOT / "recipes" / "deepspeed" / "zero2.json")
    command = [sys.executable, "-c", WITHOUT_DEEPSPEED, str(RECIPE), "--deepspeed", settings]
    done = subprocess.run(
        [*command, "--output_dir", str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert "not installed: deepspeed; install it with pip install 'hf-linear-attn[deepspeed]'" in (
        done.stderr
    )
    assert not (tmp_path / "run").exists()
