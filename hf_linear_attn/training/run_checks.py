"""Training arguments that a recipe cannot honour are refused before anything is read."""

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import Trainer, TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.trainer_utils import has_length
from transformers.training_args import trainer_log_levels

from hf_linear_attn.training.arguments import MOST_PROCESSES
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.engines import (
    check_engine,
    check_launcher,
    keep_deepspeed_from_compiling,
    missing_package,
)
from hf_linear_attn.training.optimization_checks import check_optimization
from hf_linear_attn.training.recipe_parser import RecipeParser
from hf_linear_attn.training.unused_arguments import check_is_used

# What stands behind each name of report_to, as it is imported; the first one found serves.
_REPORTERS = {
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub",),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "kubeflow": (),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
_SMALLEST = {
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "save_total_limit": 1,
    "eval_accumulation_steps": 1,
    "dataloader_num_workers": 0,
    "warmup_steps": 0,
    "eval_delay": 0,
    "weight_decay": 0,
    "max_grad_norm": 0,
}
_LARGEST = 2**31 - 1
_SEEDS = ("seed", "data_seed")


def parse_arguments(
    parser: RecipeParser, argv: list[str], default_config: Path | None, **layers: Any
) -> tuple[Any, ...]:
    """`parse_recipe`, with an optional package that an argument needs and that is missing named.

    Args:
        parser: of the recipe.
        argv: the command line without the program's name.
        default_config: read when no `--config` is given.
        layers: `under` and `over` of `parse_recipe`.

    Raises:
        ValueError: as `parse_recipe`, for what `TrainingArguments` cannot take, for a missing
            package, and for a launcher's variable that is no number.
    """
    check_launcher()
    keep_deepspeed_from_compiling()
    try:
        return parser.parse_recipe(argv, default_config=default_config, **layers)
    except ValueError:
        unset_hf_deepspeed_config()  # see below
        raise
    except (TypeError, OverflowError) as error:
        # TrainingArguments looks at what it is given while it works with it.
        unset_hf_deepspeed_config()
        raise ValueError(f"a training argument cannot be used: {error}") from error
    except ImportError as error:
        # TrainingArguments registers its engine for all models before it finds it missing.
        unset_hf_deepspeed_config()
        package, advice = missing_package(error)
        raise ValueError(
            f"an argument needs a package that is not installed: {package}; "
            f"{advice} or leave the argument (such as deepspeed) out"
        ) from error


def check_training_arguments(
    args: TrainingArguments, *, streaming: bool = False, predicts: bool = False
) -> None:
    """Raise ValueError for arguments under which a recipe could not do what is asked.

    Args:
        args: Transformers' training arguments.
        streaming: the training data have no known length.
        predicts: the recipe has a test set, so `do_predict` means something.
    """
    _check_hub(args)
    _check_length(args, streaming)
    _check_numbers(args)
    _check_cadence(args)
    _check_levels(args)
    _check_reporters(args)
    check_optimization(args)
    check_is_used(args)
    check_engine(args)
    if args.do_predict and not predicts:
        raise ValueError("do_predict: there is no test set in this recipe; leave it out")


def check_best_metric(args: TrainingArguments, known: Sequence[str]) -> None:
    """Raise ValueError if the best checkpoint is to be chosen by what no evaluation gives.

    Args:
        args: Transformers' training arguments.
        known: names of the recipe's metrics, without `eval_`.
    """
    name = args.metric_for_best_model
    if name is not None and name.removeprefix("eval_") not in known:
        hint = did_you_mean(name, known)
        raise ValueError(
            f"metric_for_best_model: got {name!r}, expected one of {', '.join(known)}{hint}"
        )


def check_no_smoothing(args: TrainingArguments) -> None:
    """Raise ValueError for label smoothing, which the loss of a language model does not have."""
    if args.label_smoothing_factor:
        raise ValueError(
            f"label_smoothing_factor {args.label_smoothing_factor} is not supported in language "
            "modelling: the models' loss has none; leave it at 0"
        )


def check_has_batches(trainer: Trainer) -> None:
    """Raise ValueError if an epoch of the training examples has no batch at all."""
    # Building a loader may draw from torch's generator, which the training is to find untouched.
    with torch.random.fork_rng(devices=[]):
        loader = trainer.get_train_dataloader()
    if has_length(loader) and len(loader) == 0:
        args, examples = trainer.args, trainer.train_dataset
        count = len(examples) if has_length(examples) else "too few"  # pyright: ignore
        raise ValueError(
            f"nothing to train on: {count} training examples give no batch of "
            f"{args.train_batch_size} with dataloader_drop_last {args.dataloader_drop_last}; give "
            "more text, lower per_device_train_batch_size, or leave dataloader_drop_last out"
        )


def check_has_trained(trainer: Trainer) -> None:
    """Raise ValueError if training has ended without one optimiser step."""
    if trainer.state.global_step == 0:
        raise ValueError(
            "nothing was trained: the training data gave no batch; give more text, lower "
            "per_device_train_batch_size, or leave dataloader_drop_last out"
        )


def check_finite(loss: float) -> None:
    """Raise ValueError for a loss that is no number: the training has diverged."""
    if not math.isfinite(loss):
        raise ValueError(
            f"the training has diverged: the final evaluation loss is {loss}; the folder is "
            "complete, but its model is of no use. Lower learning_rate, raise warmup_steps, or set "
            "max_grad_norm, with another output_dir"
        )


def longer_run(args: TrainingArguments) -> tuple[str, float] | None:
    """The argument that makes a run twice as long and its new value; None without checkpoints."""
    if args.save_strategy == "no":
        return None
    if args.max_steps > 0:
        return "max_steps", 2 * args.max_steps
    return "num_train_epochs", 2 * args.num_train_epochs


def _check_hub(args: TrainingArguments) -> None:
    """A model that is shared says on its card where it is loaded from."""
    if not args.push_to_hub:
        return
    name = args.hub_model_id or ""
    if "/" not in name:
        raise ValueError(
            "push_to_hub needs hub_model_id as user/name, which the model card gives for loading "
            f"the model; got {args.hub_model_id!r}"
        )
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"hub_model_id: got {name!r}, which the Hub refuses: {error}") from None


def _check_length(args: TrainingArguments, streaming: bool) -> None:
    if args.max_steps == 0 or not -1 <= args.max_steps <= _LARGEST:
        raise ValueError(
            f"max_steps is a positive number of optimiser steps, {_LARGEST} at most; got "
            f"{args.max_steps} (-1, the default, trains for num_train_epochs)"
        )
    if args.max_steps < 0 and not 0 < args.num_train_epochs <= _LARGEST:
        raise ValueError(
            f"num_train_epochs is positive, {_LARGEST} at most; got {args.num_train_epochs}"
        )
    if streaming and args.max_steps < 0:
        raise ValueError("a stream has no known length: streaming needs max_steps")


def _check_numbers(args: TrainingArguments) -> None:
    for name, least in _SMALLEST.items():
        most = MOST_PROCESSES if name == "dataloader_num_workers" else _LARGEST
        accepted = f"{least} or more, and {most} at most"
        _check(args, name, lambda v, least=least, most=most: least <= v <= most, accepted)
    for name in ("learning_rate", "adam_epsilon"):
        _check(args, name, lambda v: 0 < v < math.inf, "a finite number above 0")
    for name in ("adam_beta1", "adam_beta2"):
        _check(args, name, lambda v: 0 <= v < 1, "at least 0 and below 1")
    for name in _SEEDS:
        _check(args, name, lambda v: 0 <= v < 2**32, "at least 0 and below 2**32")


def _check_cadence(args: TrainingArguments) -> None:
    for kind in ("logging", "eval", "save"):
        if getattr(args, f"{kind}_strategy") == "steps":
            accepted = "above 0: a number of steps, or a share of the run below 1"
            _check(args, f"{kind}_steps", lambda v: 0 < v <= _LARGEST, accepted)


def _check_levels(args: TrainingArguments) -> None:
    for name in ("log_level", "log_level_replica"):
        value = getattr(args, name)
        if value not in trainer_log_levels:
            known = list(trainer_log_levels)
            hint = did_you_mean(str(value), known)
            raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(known)}{hint}")


def _check(
    args: TrainingArguments, name: str, is_good: Callable[[Any], bool], accepted: str
) -> None:
    """Compare a field that is set; a nan passes no comparison."""
    value = getattr(args, name)
    if value is not None and not is_good(value):
        raise ValueError(f"{name}: got {value}, expected {accepted}")


def _check_reporters(args: TrainingArguments) -> None:
    for name in args.report_to or []:
        if name not in _REPORTERS:
            known = list(_REPORTERS)
            hint = did_you_mean(name, known)
            raise ValueError(f"report_to: got {name!r}, expected {', '.join(known)} or none{hint}")
        packages = _REPORTERS[name]
        if packages and not any(find_spec(package) for package in packages):
            raise ValueError(
                f"report_to {name} needs the package {packages[0]}, which is not installed; "
                "install it or pass --report_to none"
            )
