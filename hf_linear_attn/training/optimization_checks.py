"""How a model is optimised: settings that would fail in the middle of a run, before it."""

import math
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainingArguments
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
# What Transformers reads of `optim_args`, by a word of the optimiser's name; the first that fits.
_LOW_RANK = ("rank", "update_proj_gap", "scale", "proj_type")
_READ: dict[str, tuple[str, ...]] = {
    "schedule_free": ("weight_lr_power", "r"),
    "sgd": ("momentum", "dampening", "nesterov"),
    "adagrad": ("lr_decay", "eps"),
    "rmsprop": ("momentum", "alpha", "eps", "centered"),
    "ademamix": ("beta1", "beta2", "beta3", "alpha", "eps", "t_alpha", "t_beta3"),
    "anyprecision": (
        "use_kahan_summation", "momentum_dtype", "variance_dtype", "compensation_buffer_dtype",
    ),
    "galore": _LOW_RANK,
    "apollo": (*_LOW_RANK, "proj", "scale_type"),
    "grokadamw": (
        "alpha_init", "lamb", "gamma", "grokking_signal_decay_rate", "gradient_clipping",
    ),
    "torch_4bit": ("block_size", "bf16_stochastic_round"),
    "torch_8bit": ("block_size", "bf16_stochastic_round"),
    "stable_adamw": ("max_lr", "kahan_sum", "decouple_lr"),
}  # fmt: skip
_OF_TORCH = ("sgd", "adagrad", "rmsprop")
# What Trainer and `torch.utils.checkpoint` take that a file of settings can hold.
_CHECKPOINTING: dict[str, tuple[Any, ...]] = {
    "use_reentrant": (True, False),
    "preserve_rng_state": (True, False),
    "determinism_check": ("default", "none"),
    "debug": (True, False),
    "early_stop": (True, False),
    "offload": (True, False),
}
_EVERY = "every_n_layers"
# Transformers puts the value of one into the other.
_BOTH = "gradient_checkpointing_kwargs (or activation_checkpointing_kwargs)"
# A run of as many steps where epochs are asked for: how many they will be is not known yet.
_STEPS = 10_000
_EVALUATIONS = 30


def check_optimization(args: TrainingArguments) -> None:
    """Raise ValueError for an optimiser, a schedule or settings of them that cannot be had."""
    _check_package(args)
    _check_optimizer_settings(args)
    _check_schedule(args)
    _check_checkpointing(args)
    noise = args.neftune_noise_alpha
    if noise is not None and not 0 < noise < math.inf:
        raise ValueError(f"neftune_noise_alpha: got {noise}, expected a finite number above 0")


def _check_package(args: TrainingArguments) -> None:
    name = _optimizer(args)
    package = next((p for word, p in _OPTIMIZER_PACKAGES.items() if word in name), None)
    if package is not None and not find_spec(package):
        raise ValueError(
            f"optim {name} needs the package {package}, which is not installed; install it or "
            "choose another optimiser, such as adamw_torch"
        )


def _check_optimizer_settings(args: TrainingArguments) -> None:
    """Refuse settings that an optimiser does not read, and values that it refuses."""
    optimizer = _optimizer(args)
    known = next((names for word, names in _READ.items() if word in optimizer), ())
    for pair in filter(None, (args.optim_args or "").replace(" ", "").split(",")):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise ValueError(f"optim_args: got {pair!r}, expected name=value,name=value")
        if name not in known:
            reads = f"expected some of {', '.join(known)}" if known else "it reads none"
            raise ValueError(
                f"optim_args: got {name!r}, which the optimiser {optimizer} does not read: "
                f"{reads}; learning_rate, weight_decay, adam_beta1, adam_beta2 and adam_epsilon "
                "are arguments of their own"
            )
    if args.optim_args and optimizer in _OF_TORCH:
        try:
            kind, settings = Trainer.get_optimizer_cls_and_kwargs(args)
            kind([torch.zeros(1, requires_grad=True)], **settings)
        except ValueError as error:
            raise ValueError(
                f"optim_args: got {args.optim_args!r}, which the optimiser {optimizer} refuses: "
                f"{error}"
            ) from error


def _optimizer(args: TrainingArguments) -> str:
    return str(getattr(args.optim, "value", args.optim))


def _check_schedule(args: TrainingArguments) -> None:
    """Look at the rates of a schedule, as they will be."""
    given = args.lr_scheduler_kwargs or {}
    name = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
    warmup = args.get_warmup_steps(args.max_steps if args.max_steps > 0 else _STEPS)
    steps = args.max_steps if args.max_steps > 0 else max(_STEPS, 2 * warmup)
    said = f"lr_scheduler_kwargs: got {given}" if given else f"lr_scheduler_type: got {name}"
    try:
        rates = dict(_rates(args, warmup, steps))
    except (TypeError, ValueError, ArithmeticError) as error:
        hint = (
            "; name what it needs with lr_scheduler_kwargs, or give it fewer warm-up steps "
            f"({warmup:,} of {steps:,})"
        )
        message = f"{said}, which the schedule {name} refuses: {error}{'' if given else hint}"
        raise ValueError(message) from error
    said = f"{said}, with which the schedule {name} gives"
    wrong = next((step for step, rate in rates.items() if not 0 <= rate < math.inf), None)
    if wrong is not None:
        raise ValueError(
            f"{said} a learning rate of {rates[wrong]} at step {wrong:,} of {steps:,}; expected "
            "finite rates from 0"
        )
    # Transformers takes a rate that is no number for 0. None is trained with after the last step.
    warm = [rate for step, rate in rates.items() if warmup <= step < steps]
    if args.learning_rate > 0 and warm and not any(warm):
        raise ValueError(f"{said} no learning rate above 0 behind the warm-up")


def _rates(args: TrainingArguments, warmup: int, steps: int) -> Iterator[tuple[int, float]]:
    """Some steps of every phase and the rate at each, of an optimiser of one number."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=args.learning_rate)
    given: Any = args.lr_scheduler_kwargs or {}
    schedule: Any = get_scheduler(args.lr_scheduler_type, optimizer, warmup, steps, dict(given))
    if isinstance(schedule, LambdaLR):
        [base], [factor] = schedule.base_lrs, schedule.lr_lambdas
        parts = {warmup + (steps - warmup) * part // 8 for part in range(9)}
        for step in sorted({0, 1, warmup // 2, warmup + 1, steps - 1, *parts}):
            if 0 <= step <= steps:
                yield step, float(base * factor(step))
        return
    # The others go by the evaluations: the loss of these never falls.
    for step in range(_EVALUATIONS):
        schedule.step(1.0)
        yield step, schedule.optimizer.param_groups[0]["lr"]


def _check_checkpointing(args: TrainingArguments) -> None:
    given: Any = args.gradient_checkpointing_kwargs or {}
    if not isinstance(given, dict):
        raise ValueError(f"{_BOTH}: got {given!r}, expected a mapping")
    for name, value in given.items():
        if name == _EVERY:
            if type(value) is not int or value < 1:
                raise ValueError(_refusal(name, value, "a number of layers, 1 or more"))
        elif name not in _CHECKPOINTING:
            raise ValueError(
                f"{_BOTH}: got {name!r}, expected some of {', '.join([*_CHECKPOINTING, _EVERY])}"
            )
        elif type(value) is not type(_CHECKPOINTING[name][0]) or value not in _CHECKPOINTING[name]:
            raise ValueError(_refusal(name, value, " or ".join(map(str, _CHECKPOINTING[name]))))
    if given.get("use_reentrant") and given.get("debug"):
        raise ValueError(_refusal("debug", True, "it with use_reentrant False only"))


def _refusal(name: str, value: Any, expected: str) -> str:
    return f"{_BOTH}: {name}: got {value!r}, expected {expected}"
