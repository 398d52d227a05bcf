"""What a run ran on, for model cards."""

import platform
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate.state import AcceleratorState, is_initialized
from transformers import TrainingArguments

import hf_linear_attn


def hardware_facts(args: TrainingArguments) -> dict[str, Any]:
    """Device, processes, engine, precision and versions.

    Args:
        args: of the run, on the machine it ran on.
    """
    return {
        "device": device_name(args.device),
        "processes": args.world_size,
        "engine": _engine(args),
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "hf_linear_attn": hf_linear_attn.__version__,
    }


def device_name(device: torch.device) -> str:
    """The maker's name of a GPU, or of the processor with the number of threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _engine(args: TrainingArguments) -> str:
    """How the processes work together, in accelerate's words."""
    state = AcceleratorState() if is_initialized() else args.distributed_state
    kind = "NO" if state is None else str(state.distributed_type.value)
    return "one process" if kind == "NO" else kind
