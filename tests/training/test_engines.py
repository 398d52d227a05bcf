"""Engines: the launchers' files, what is refused, and what a checkpoint tells of its engine."""

import itertools
import json
import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from transformers import TrainingArguments

from hf_linear_attn.models import layers
from hf_linear_attn.models.trunk import LinearAttnPreTrainedModel
from hf_linear_attn.training import engines
from hf_linear_attn.training.checkpoints import (
    check_same_engine,
    saved_engine,
    unfinished_checkpoints,
    write_engine,
)
from hf_linear_attn.training.checksums import write_checksums
from hf_linear_attn.training.engines import (
    Engine,
    check_engine,
    check_launcher,
    engine_of,
    launch_words,
    missing_package,
    shares_weights,
)
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.run_checks import parse_arguments

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted((RECIPES / "accelerate").glob("*.yaml"))


def arguments(zero=None, kind=DistributedType.NO, processes=1, **fields):
    """What is looked at of training arguments."""
    plugin = None
    if zero is not None:
        plugin = SimpleNamespace(deepspeed_config={"zero_optimization": zero})
    state = SimpleNamespace(distributed_type=kind)
    given = {"fsdp": None, "fsdp_plugin_args": None, "device": torch.device("cpu")} | fields
    return SimpleNamespace(
        deepspeed_plugin=plugin, world_size=processes, distributed_state=state, **given
    )


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("ACCELERATE_", "FSDP_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_launcher_file_is_read_and_every_field_is_explained(file):
    load_config_from_file(str(file))
    lines = file.read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        field = line.strip()
        section = field.endswith(":")
        assert section or not field or field.startswith("#") or before.strip().startswith("#"), line


def test_there_is_a_file_for_every_engine():
    names = {"single", "ddp", "ddp-cpu", "zero1", "zero2", "zero3", "fsdp2"}
    assert {file.stem for file in FILES} == names


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_deepspeed_files_say_their_stage_and_leave_the_rest_to_the_recipe(stage):
    launcher = yaml.safe_load((RECIPES / "accelerate" / f"zero{stage}.yaml").read_text())
    file = RECIPES.parent / launcher["deepspeed_config"]["deepspeed_config_file"]
    settings = json.loads(file.read_text())
    zero = settings.pop("zero_optimization")
    assert zero["stage"] == stage
    assert zero.get("stage3_gather_16bit_weights_on_model_save", False) == (stage == 3)
    left = [v["enabled"] if isinstance(v, dict) else v for v in settings.values()]
    assert set(left) == {"auto"}


def test_fsdp_shares_out_the_block_of_the_trunk():
    launcher = yaml.safe_load((RECIPES / "accelerate" / "fsdp2.yaml").read_text())["fsdp_config"]
    name = launcher["fsdp_transformer_layer_cls_to_wrap"]
    assert issubclass(getattr(layers, name), torch.nn.Module)
    assert LinearAttnPreTrainedModel._no_split_modules == [name]
    assert launcher["fsdp_state_dict_type"] == "SHARDED_STATE_DICT"


def test_the_engine_is_known_before_the_trainer(monkeypatch):
    assert engine_of(arguments()) == Engine("single", 1)
    assert engine_of(arguments(processes=2)) == Engine("ddp", 2)
    assert engine_of(arguments({"stage": 3}, processes=4)) == Engine("zero3", 4)
    assert shares_weights(arguments({"stage": 3}))
    assert not shares_weights(arguments({"stage": 2}, processes=4))
    assert not shares_weights(arguments(processes=2))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert engine_of(arguments(processes=8)) == Engine("fsdp2", 8)
    assert shares_weights(arguments(processes=8))


WHOLE = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
FSDP = {"fsdp": True, "kind": DistributedType.MULTI_GPU}
REFUSED = [
    (arguments(), {"WORLD_SIZE": "2"}, "started 2 processes, but each of them would train alone"),
    (arguments({"stage": 2}), {}, "DeepSpeed is started by a launcher"),
    (
        arguments({"stage": 2}),
        {"RANK": "0", "ACCELERATE_USE_CPU": "true"},
        "ACCELERATE_USE_CPU turns DeepSpeed off",
    ),
    (
        arguments(WHOLE | {"stage3_gather_16bit_weights_on_model_save": False}),
        {"RANK": "0"},
        "would save no whole model",
    ),
    (arguments({"stage": 3}), {"RANK": "0"}, "would save no whole model"),
    (
        arguments(kind=DistributedType.MULTI_CPU),
        {"ACCELERATE_USE_FSDP": "true"},
        "fsdp: FSDP needs GPUs and a launcher",
    ),
    (arguments(fsdp=True), {}, "fsdp: FSDP needs GPUs and a launcher"),
    (
        arguments(kind=DistributedType.MULTI_GPU),
        {"ACCELERATE_USE_FSDP": "true"},
        "fsdp_version 1 is not supported",
    ),
    (
        arguments(
            **FSDP, fsdp_plugin_args={"fsdp_version": 2, "state_dict_type": "FULL_STATE_DICT"}
        ),
        {},
        "fsdp_state_dict_type FULL_STATE_DICT is not supported",
    ),
]


@pytest.mark.parametrize(("args", "environment", "message"), REFUSED)
def test_an_engine_that_would_become_another_is_refused(args, environment, message, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        check_engine(args)


def test_engines_that_run_are_accepted(monkeypatch):
    check_engine(arguments())
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_engine(arguments(WHOLE, processes=2))
    check_engine(arguments({"stage": 2}, processes=2))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    check_engine(arguments(kind=DistributedType.MULTI_GPU, processes=2))


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"])
@pytest.mark.parametrize("value", ["two", "", "1.5", "-2"])
def test_a_launcher_s_variable_that_is_no_number_is_named(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"the environment variable {name} is '{value}'"):
        parse_arguments(RecipeParser((TrainingArguments,)), ["--output_dir", "x"], None)
    for sound in ("0", "-1"):
        monkeypatch.setenv(name, sound)
        check_launcher()


def test_the_commands_printed_start_the_same_engine():
    assert launch_words(arguments(), "recipes/mlm.py") == ["accelerate", "launch", "recipes/mlm.py"]
    for args, name in (
        (arguments(processes=2, use_cpu=True), "ddp-cpu"),
        (arguments(processes=8, use_cpu=False), "ddp"),
        (arguments({"stage": 3}, processes=2), "zero3"),
    ):
        words = launch_words(args, "recipes/mlm.py")
        file = f"recipes/accelerate/{name}.yaml"
        launcher = [
            "accelerate",
            "launch",
            "--config_file",
            file,
            "--num_processes",
            str(args.world_size),
        ]
        assert words == [*launcher, "recipes/mlm.py"]
        assert (RECIPES.parent / file).is_file()


@pytest.mark.parametrize("launched", [True, False])
def test_deepspeed_compiles_nothing_on_a_cpu(launched, monkeypatch):
    stand_in = ModuleType("deepspeed")
    stand_in.ops = SimpleNamespace(__compatible_ops__={"deepspeed_shm_comm": True})
    monkeypatch.setitem(sys.modules, "deepspeed", stand_in)
    monkeypatch.setattr(engines, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if launched:
        monkeypatch.setenv("RANK", "0")
    engines.keep_deepspeed_from_compiling()
    assert stand_in.ops.__compatible_ops__ == {"deepspeed_shm_comm": not launched}


def test_a_missing_deepspeed_is_named_with_its_extra():
    for error in (
        PackageNotFoundError("The 'deepspeed>=0.9.3' distribution was not found"),
        ImportError("DeepSpeed is not installed => run `pip3 install deepspeed`"),
        ModuleNotFoundError("No module named 'deepspeed'", name="deepspeed"),
    ):
        package, advice = missing_package(error)
        assert package == "deepspeed"
        assert "hf-linear-attn[deepspeed]" in advice
    assert missing_package(ImportError("x", name="apex")) == ("apex", "install it")


def checkpoint_of(folder, *names):
    """A checkpoint in which every file is the same; only names are looked at."""
    for name in ("trainer_state.json", *names):
        file = folder / "checkpoint-4" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return folder / "checkpoint-4"


RNG = ("rng_state_0.pth", "rng_state_1.pth")
ENGINES = {
    ("rng_state.pth",): Engine("single", 1),
    RNG: Engine("ddp", 2),
    (*RNG, "global_step4/mp_rank_00_model_states.pt"): Engine("zero2", 2),
    (*RNG, "global_step4/zero_pp_rank_0_mp_rank_00_model_states.pt"): Engine("zero3", 2),
    (*RNG, "pytorch_model_fsdp_0/.metadata"): Engine("fsdp2", 2),
}


@pytest.mark.parametrize(("names", "engine"), ENGINES.items(), ids=lambda e: str(e)[-24:])
def test_files_tell_the_engine_where_it_is_not_written_down(names, engine, tmp_path):
    checkpoint = checkpoint_of(tmp_path, *names)
    assert saved_engine(checkpoint) == engine
    write_engine(checkpoint, Engine("zero1", 4))
    assert saved_engine(checkpoint) == Engine("zero1", 4)


@pytest.mark.parametrize("names", ENGINES, ids=lambda e: str(e)[-24:])
def test_what_several_processes_write_counts_with_checksums_only(names, tmp_path):
    checkpoint = checkpoint_of(tmp_path, *names)
    several = names != ("rng_state.pth",)
    assert unfinished_checkpoints(tmp_path) == [checkpoint] * several
    write_checksums(checkpoint)
    assert unfinished_checkpoints(tmp_path) == []


@pytest.mark.parametrize(
    ("saved", "now", "advice"),
    [
        (Engine("ddp", 2), Engine("single", 1), "ddp.yaml --num_processes 2"),
        (Engine("single", 1), Engine("ddp", 2), "without a launcher"),
        (Engine("zero2", 2), Engine("zero3", 2), "zero2.yaml --num_processes 2"),
        (Engine("fsdp2", 4), Engine("fsdp2", 8), "fsdp2.yaml --num_processes 4"),
    ],
)
def test_another_engine_or_number_of_processes_is_refused(saved, now, advice, tmp_path):
    checkpoint = checkpoint_of(tmp_path)
    write_engine(checkpoint, saved)
    with pytest.raises(ValueError, match="would not train the same") as refused:
        check_same_engine(checkpoint, now)
    assert advice in str(refused.value)
    assert "--model_name_or_path" in str(refused.value)
    check_same_engine(checkpoint, saved)


STAND_IN = """#!/usr/bin/env bash
case "$(basename "$0")" in
  srun) shift; exec "$@" ;;
  scontrol) if [[ $1 == show ]]; then echo first; else echo "$@" > requeued; fi ;;
  accelerate)
    printf '%s\\n' "$@" > launched.part && mv launched.part launched
    trap 'exit 1' TERM
    for ((i = 0; i < 200; i++)); do [[ -e go ]] && exit 3; sleep 0.05; done ;;
esac
"""


@pytest.fixture
def slurm(tmp_path):
    """Start a Slurm script with stand-ins for the programs it calls."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("srun", "scontrol", "accelerate"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_ID": "41",
        "SLURM_NODEID": "1",
        "ENGINE": "zero2",
        "GPUS": "4",
    }

    def start(script):
        command = ["bash", str(RECIPES / "slurm" / script), "recipes/mlm.py", "--run_name", "a b"]
        return subprocess.Popen(command, cwd=tmp_path, env=environment)

    return start


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("single-node.sh", "--num_processes 4"),
        (
            "multi-node.sh",
            "--num_machines 2 --num_processes 8 --machine_rank 1 --main_process_ip first "
            "--main_process_port 20041",
        ),
    ],
)
def test_a_slurm_script_launches_and_passes_the_exit_code_on(slurm, script, expected, tmp_path):
    (tmp_path / "go").touch()
    assert slurm(script).wait(30) == 3
    words = (tmp_path / "launched").read_text().splitlines()
    assert f"--config_file recipes/accelerate/zero2.yaml {expected}" in " ".join(words)
    assert words[-3:] == ["recipes/mlm.py", "--run_name", "a b"]
    assert not (tmp_path / "requeued").exists()


@pytest.mark.parametrize("script", ["single-node.sh", "multi-node.sh"])
def test_a_slurm_job_that_is_stopped_queues_itself_again(slurm, script, tmp_path):
    job = slurm(script)
    for _ in range(200):
        if (tmp_path / "launched").exists():
            break
        time.sleep(0.05)
    job.terminate()
    assert job.wait(30) == 0
    assert (tmp_path / "requeued").read_text() == "requeue 41\n"
