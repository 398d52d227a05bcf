"""The engines that train on several processes: which one was asked for, and whether it really runs.

DDP, DeepSpeed's ZeRO and FSDP2 are chosen by the launcher (`recipes/accelerate/*.yaml`) or by
`--deepspeed` and `--fsdp`. Where they cannot run, accelerate falls back to something else without a
word; here that is an error.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, parse_flag_from_env
from transformers import TrainingArguments
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config

_COUNTS = ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK")
_ON_CPU = "on a CPU pass --use_cpu (use_cpu: true in the config)"


@dataclass(frozen=True)
class Engine:
    """What shares the work of a step.

    Attributes:
        name: single, ddp, zero0 … zero3, or fsdp2.
        processes: how many share the work.
    """

    name: str
    processes: int

    @property
    def is_sharded(self) -> bool:
        """Whether checkpoints hold a part of the training's state for each process."""
        return self.name.startswith(("zero", "fsdp"))

    def __str__(self) -> str:
        several = "" if self.processes == 1 else "es"
        return f"{self.processes} process{several} ({self.name})"


def engine_of(args: TrainingArguments) -> Engine:
    """The engine that launcher and arguments ask for."""
    if args.deepspeed_plugin is not None:
        return Engine(f"zero{_zero(args).get('stage', 0)}", args.world_size)
    if _asks_for_fsdp(args):
        return Engine("fsdp2", args.world_size)
    return Engine("ddp" if args.world_size > 1 else "single", args.world_size)


def shares_weights(args: TrainingArguments) -> bool:
    """Whether each process is to keep a part of the weights only."""
    return engine_of(args).name in ("zero3", "fsdp2")


def launch_words(args: TrainingArguments, program: str) -> list[str]:
    """The beginning of a command that starts a program under the same engine."""
    engine = engine_of(args)
    if engine.name == "single":
        return ["accelerate", "launch", program]
    file = Path(program).parent / "accelerate" / f"{_launcher_file(engine, args)}.yaml"
    processes = str(engine.processes)
    launcher = ["accelerate", "launch", "--config_file", str(file), "--num_processes", processes]
    return [*launcher, program]


def check_engine(args: TrainingArguments) -> None:
    """Check that the engine asked for is the one that would run.

    Raises:
        ValueError: an engine that would silently become another one, processes that would not know
            of each other, or an engine's setting under which no whole model would be saved.
    """
    _check_processes(args)
    if args.deepspeed_plugin is not None:
        _check_deepspeed(args)
    elif _asks_for_fsdp(args):
        _check_fsdp(args)


def check_launcher() -> None:
    """Raise ValueError for variables of a launcher that are no numbers.

    They are read wherever processes are counted, by libraries that do not name them.
    """
    for name in _COUNTS:
        value = os.environ.get(name, "0")
        # -1 stands for a process that no launcher has started.
        if not value.isdecimal() and value != "-1":
            raise ValueError(
                f"the environment variable {name} is {value!r}; expected a whole number, as a "
                "launcher sets it: unset it, or start the program with accelerate launch"
            )


def keep_deepspeed_from_compiling() -> None:
    """Let DeepSpeed, on a CPU, do without its shared-memory operator; gloo serves as well.

    Its compilation takes minutes, needs a compiler, and a first run that is killed meanwhile leaves
    a lock that hangs all later ones. It would begin as soon as `TrainingArguments` are made, so
    this comes before them, in processes that a launcher has started.
    """
    launched = "RANK" in os.environ
    if launched and not torch.cuda.is_available() and find_spec("deepspeed") is not None:
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


@contextmanager
def built_whole(args: TrainingArguments) -> Iterator[None]:
    """Within it models are built whole on each process, with the weights of a single process.

    Under ZeRO-3 Transformers would build them in parts, from other random numbers. The engine takes
    the parts when training begins. Only `zero3_init_flag: true` in the launcher's file keeps the
    building in parts, for models beyond a machine's memory.
    """
    asked = parse_flag_from_env("ACCELERATE_DEEPSPEED_ZERO3_INIT")
    if args.deepspeed_plugin is None or asked:
        yield
        return
    config = getattr(args, "hf_deepspeed_config", None) or args.deepspeed_plugin.dschf
    unset_hf_deepspeed_config()
    try:
        yield
    finally:
        set_hf_deepspeed_config(config)


def missing_package(error: ImportError) -> tuple[str, str]:
    """The package whose absence has raised an error, and how to install it."""
    text = f"{error.name} {error}".lower()
    if "deepspeed" in text:
        return "deepspeed", "install it with pip install 'hf-linear-attn[deepspeed]'"
    return error.name or str(error), "install it"


def _launcher_file(engine: Engine, args: TrainingArguments) -> str:
    return "ddp-cpu" if engine.name == "ddp" and args.use_cpu else engine.name


def _zero(args: TrainingArguments) -> dict[str, Any]:
    assert args.deepspeed_plugin is not None
    return args.deepspeed_plugin.deepspeed_config.get("zero_optimization", {})


def _asks_for_fsdp(args: TrainingArguments) -> bool:
    return bool(args.fsdp) or parse_flag_from_env("ACCELERATE_USE_FSDP")


def _distributed_type(args: TrainingArguments) -> DistributedType:
    assert args.distributed_state is not None
    return args.distributed_state.distributed_type


def _check_processes(args: TrainingArguments) -> None:
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched != args.world_size:
        raise ValueError(
            f"the launcher has started {launched} processes, but each of them would train alone "
            f"and write over the others, as no device is there for them: {_ON_CPU}"
        )


def _check_deepspeed(args: TrainingArguments) -> None:
    if "RANK" not in os.environ:
        raise ValueError(
            "DeepSpeed is started by a launcher, also for one process: accelerate launch "
            "--config_file recipes/accelerate/zero2.yaml --num_processes 1 …"
        )
    if parse_flag_from_env("ACCELERATE_USE_CPU"):
        raise ValueError(
            f"ACCELERATE_USE_CPU turns DeepSpeed off without a word; unset it, and {_ON_CPU}"
        )
    zero = _zero(args)
    if zero.get("stage") == 3 and not zero.get("stage3_gather_16bit_weights_on_model_save"):
        raise ValueError(
            "ZeRO-3 would save no whole model: set stage3_gather_16bit_weights_on_model_save to "
            "true in the DeepSpeed config, as in recipes/deepspeed/zero3.json"
        )


def _check_fsdp(args: TrainingArguments) -> None:
    if _distributed_type(args) in (DistributedType.NO, DistributedType.MULTI_CPU):
        raise ValueError(
            "fsdp: FSDP needs GPUs and a launcher; without them accelerate trains by plain DDP and "
            "does not say so. On a CPU use recipes/accelerate/ddp-cpu.yaml, or zero3.yaml for a "
            "sharded model"
        )
    version, kind = _fsdp_settings(args)
    if version != 2:
        raise ValueError(
            f"fsdp_version {version} is not supported: set fsdp_version to 2, as in "
            "recipes/accelerate/fsdp2.yaml"
        )
    if kind != "SHARDED_STATE_DICT":
        raise ValueError(
            f"fsdp_state_dict_type {kind} is not supported: set SHARDED_STATE_DICT, as in "
            "recipes/accelerate/fsdp2.yaml; model.safetensors is saved whole all the same"
        )


def _fsdp_settings(args: TrainingArguments) -> tuple[int, str]:
    """Version and state-dict type, from `--fsdp` or else from the launcher."""
    asked = args.fsdp_plugin_args
    if asked is not None:
        return int(asked["fsdp_version"]), str(asked["state_dict_type"])
    version = int(os.environ.get("FSDP_VERSION", "1"))
    default = "SHARDED_STATE_DICT" if version == 2 else "FULL_STATE_DICT"
    return version, os.environ.get("FSDP_STATE_DICT_TYPE", default)
