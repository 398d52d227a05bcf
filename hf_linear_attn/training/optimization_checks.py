"""How a model is optimised: settings that would fail in the middle of a run, before it."""

import math
from importlib.util import find_spec
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.optimization import get_scheduler

# The package behind an optimiser whose name holds the word, the first that fits; all others come
# with torch or transformers.
_OPTIMIZER_PACKAGES = {
    "torch_4bit": "torchao",
    "torch_8bit": "torchao",
    "galore": "galore_torch",
    "apollo": "apollo_torch",
    "anyprecision": "torchdistx",
    "lomo": "lomo_optim",
    "grokadamw": "grokadamw",
    "schedule_free": "schedulefree",
    "stable_adamw": "optimi",
    "8bit": "bitsandbytes",
    "bnb": "bitsandbytes",
    "paged": "bitsandbytes",
    "ademamix": "bitsandbytes",
    "lion": "bitsandbytes",
}
# Of `torch.utils.checkpoint`, those that a file of settings can hold.
_CHECKPOINTING = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop")


def check_optimization(args: TrainingArguments) -> None:
    """Raise ValueError for an optimiser, a schedule or settings of them that cannot be had."""
    _check_package(args)
    _check_pairs(args)
    _check_schedule(args)
    _check_checkpointing(args)
    noise = args.neftune_noise_alpha
    if noise is not None and not 0 < noise < math.inf:
        raise ValueError(f"neftune_noise_alpha: got {noise}, expected a finite number above 0")


def _check_package(args: TrainingArguments) -> None:
    name = str(getattr(args.optim, "value", args.optim))
    package = next((p for word, p in _OPTIMIZER_PACKAGES.items() if word in name), None)
    if package is not None and not find_spec(package):
        raise ValueError(
            f"optim {name} needs the package {package}, which is not installed; install it or "
            "choose another optimiser, such as adamw_torch"
        )


def _check_pairs(args: TrainingArguments) -> None:
    text = args.optim_args or ""
    for pair in filter(None, text.replace(" ", "").split(",")):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise ValueError(f"optim_args: got {pair!r}, expected name=value,name=value")


def _check_schedule(args: TrainingArguments) -> None:
    """Make the schedule once, for an optimiser of one number."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    given: Any = args.lr_scheduler_kwargs
    kind: Any = args.lr_scheduler_type
    name = getattr(kind, "value", kind)
    try:
        get_scheduler(kind, optimizer, 1, 10, dict(given or {}))
    except (TypeError, ValueError) as error:
        if given:
            raise ValueError(
                f"lr_scheduler_kwargs: got {given}, which the schedule {name} refuses: {error}"
            ) from error
        raise ValueError(
            f"lr_scheduler_type {name}: {error}; name what it needs with lr_scheduler_kwargs"
        ) from error


def _check_checkpointing(args: TrainingArguments) -> None:
    for name in args.gradient_checkpointing_kwargs or {}:
        if name not in _CHECKPOINTING:
            raise ValueError(
                f"gradient_checkpointing_kwargs: got {name!r}, expected some of "
                f"{', '.join(_CHECKPOINTING)}"
            )
