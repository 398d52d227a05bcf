"""Arguments of Transformers that would do nothing in a recipe, or not what they say."""

import dataclasses
from typing import Any, cast, get_type_hints

from accelerate.utils import GradientAccumulationPlugin
from transformers import TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from hf_linear_attn.training.casting import cast_value, did_you_mean

_HALF_PRECISION = ("fp16", "fp16_full_eval", "bf16_full_eval")
_COUNTED = ("all", "non_padding", "no")


def check_is_used(args: TrainingArguments) -> None:
    """Raise ValueError for an argument that is given in vain, with what to do instead.

    Args:
        args: Transformers' training arguments.
    """
    for name in _HALF_PRECISION:
        if getattr(args, name) and args.device.type == "cpu":
            raise ValueError(f"{name} is not supported on a CPU; leave it out or pass --bf16")
    _check_wanted(args)
    _check_values(args)
    _check_compilation(args)
    _check_accelerator(args)


def _check_wanted(args: TrainingArguments) -> None:
    if args.save_only_model:
        raise ValueError(
            "save_only_model: no run could go on from its checkpoints, which would lack the state "
            "of the training; leave it out (save_total_limit 1 keeps the newest one only)"
        )
    if args.use_liger_kernel:
        raise ValueError(
            "use_liger_kernel: there are no Liger kernels for these models; leave it out"
        )
    if args.enable_jit_checkpoint:
        raise ValueError(
            "enable_jit_checkpoint is not needed: on SIGTERM a run finishes its step, saves a "
            "checkpoint and leaves; leave it out"
        )
    if args.resume_from_checkpoint is not None:
        raise ValueError(
            "resume_from_checkpoint is not needed: a run goes on from the newest checkpoint in its "
            "output_dir by itself; leave it out"
        )


def _check_values(args: TrainingArguments) -> None:
    if args.label_names not in (None, ["labels"]):
        raise ValueError(
            f"label_names: got {args.label_names}, and the labels of these models are called "
            "labels; leave it out"
        )
    if args.include_num_input_tokens_seen not in _COUNTED:
        raise ValueError(
            f"include_num_input_tokens_seen: got {args.include_num_input_tokens_seen!r}, expected "
            f"true, false or one of {', '.join(_COUNTED)}"
        )
    if args.deepspeed is not None and not args.deepspeed:
        raise ValueError(
            f"deepspeed: got {args.deepspeed!r}, which asks for nothing; leave it out, or name a "
            "file such as recipes/deepspeed/zero2.json"
        )


def _check_compilation(args: TrainingArguments) -> None:
    mode, backend = args.torch_compile_mode, args.torch_compile_backend
    if mode is None:
        return
    if str(backend).lower() != "inductor":
        raise ValueError(
            f"torch_compile_mode: got {mode!r}, which torch_compile_backend {backend} does not "
            "read; leave one of them out"
        )
    from torch._inductor import list_mode_options  # what torch.compile itself looks into

    known = list(list_mode_options())
    if mode not in known:
        hint = did_you_mean(mode, known)
        raise ValueError(
            f"torch_compile_mode: got {mode!r}, expected one of {', '.join(known)}{hint}"
        )


def _check_accelerator(args: TrainingArguments) -> None:
    """Look at the values; the names of the outer mapping are known by now."""
    given = dataclasses.asdict(cast("Any", args.accelerator_config))
    _check_fields("accelerator_config", given, AcceleratorConfig)
    accumulation = given.get("gradient_accumulation_kwargs") or {}
    name = "accelerator_config: gradient_accumulation_kwargs"
    if "num_steps" in accumulation:
        raise ValueError(f"{name}: num_steps: give it as gradient_accumulation_steps")
    _check_fields(name, accumulation, GradientAccumulationPlugin)


def _check_fields(source: str, given: dict[str, Any], kind: type) -> None:
    hints = get_type_hints(kind)
    for name, value in given.items():
        if name not in hints:
            raise ValueError(f"{source}: unknown key {name!r}{did_you_mean(name, hints)}")
        try:
            cast_value(value, hints[name])
        except ValueError as error:
            raise ValueError(f"{source}: {name}: {error}") from error
