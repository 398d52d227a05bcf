"""What is published of a preset's task, and in what a run differs from it.

The published values are those of the preset's own file, `<configs>/<preset>/<task>.yaml`, with the
file of the attention over it where the folder has one (such as `pathfinder-softmax.yaml`).
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from transformers import TrainingArguments

from hf_linear_attn.models.lra_config import LraConfig
from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.casting import cast_value
from hf_linear_attn.training.lra.arguments import (
    GeneratorArguments,
    LraArguments,
    LraRunArguments,
)
from hf_linear_attn.training.lra.data import LraData, max_length
from hf_linear_attn.training.lra.model_setup import build_lra_config
from hf_linear_attn.training.lra.presets import PRESETS
from hf_linear_attn.training.lra.splits import SPLITS
from hf_linear_attn.training.lra.tasks import TASKS
from hf_linear_attn.training.yaml_files import read_yaml_mapping

# What decides the weights and the choice among them, and is in no other list here.
_OPTIMISER = (
    "optim", "optim_args", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs",
    "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "bf16", "fp16",
    "neftune_noise_alpha", "train_sampling_strategy", "dataloader_drop_last", "eval_strategy",
    "eval_steps",
)  # fmt: skip
_TASK = ("lr_schedule", "validation_fraction")
_KEY_HEADS = "num_key_value_heads"
# They follow from max_length, say nothing of the model's size, or hold the trunk.
_NOT_COMPARED = {
    "max_position_embeddings", "trunk", "transformers_version", "architectures", "dtype",
    "_name_or_path", "model_type",
}  # fmt: skip


def published_values(configs: Path, preset: str, task: str, attention: str) -> dict[str, Any]:
    """The fields of the preset's file, the attention's own one over it.

    Args:
        configs: folder of the recipe's configurations.
        preset: names the folder in it.
        task: names the file.
        attention: whose shape may be another one.

    Raises:
        ValueError: a file that cannot be read.
    """
    values = read_yaml_mapping(configs / preset / f"{task}.yaml")
    for file in sorted((configs / preset).glob("*.yaml")):
        over = read_yaml_mapping(file)
        is_overlay = file.stem not in TASKS and over.get("task", task) == task
        if is_overlay and over.get("attention") == attention:
            model = {**values.get("model", {}), **over.get("model", {})}
            values = {**values, **over, "model": model}
    return values


def differences(
    args: LraRunArguments, config: LraConfig, data: LraData, steps: int, configs: Path
) -> list[str]:
    """In what a run is not as published: `<name> <here> instead of <published>`, one text each.

    Args:
        args: of the run.
        config: of its model.
        data: of its task.
        steps: optimiser steps that were done.
        configs: folder of the recipe's configurations.
    """
    lra = args.lra
    values = published_values(configs, lra.preset, lra.task, args.model.attention)
    here, there = _run_values(args, data, steps), _published_values(args, values, data)
    shared = _OPTIMISER if lra.lr_schedule is None and not values.get("lr_schedule") else [
        name for name in _OPTIMISER if name != "lr_scheduler_type"
    ]  # fmt: skip
    for name in shared:
        here[name] = getattr(args.training, name)
        there[name] = _cast(TrainingArguments, name, values)
    texts = _compared(here, there) + _compared(
        _model_values(config), _model_values(_published_config(args, values))
    )
    if lra.is_drawn(lra.task):
        texts.append("examples drawn here instead of the released ones")
    if args.model.model_name_or_path is not None:
        texts.append("the weights of a saved model to begin with instead of new ones")
    return texts


def _run_values(args: LraRunArguments, data: LraData, steps: int) -> dict[str, Any]:
    training = args.training
    batch = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
    return {
        "optimiser steps": steps,
        "warmup_steps": training.get_warmup_steps(steps),
        "examples in a step": batch,
        **{f"{name} examples": len(data.splits[name]) for name in SPLITS},
        "max_length": data.max_length,
        "over_long": data.rule,
        **{name: getattr(args.lra, name) for name in _TASK},
        **{name: getattr(args.generators, name) for name in _generated(args)},
    }


def _published_values(
    args: LraRunArguments, values: Mapping[str, Any], data: LraData
) -> dict[str, Any]:
    scale = PRESETS[args.lra.preset].tasks[args.lra.task]
    return {
        "optimiser steps": scale.steps,
        "warmup_steps": _cast(TrainingArguments, "warmup_steps", values),
        "examples in a step": scale.batch,
        **{f"{name} examples": getattr(scale, name) for name in SPLITS},
        "max_length": scale.length,
        "over_long": values.get("over_long") or ("cut" if data.task.cut else "refuse"),
        **{name: _cast(LraArguments, name, values) for name in _TASK},
        **{name: _cast(GeneratorArguments, name, values) for name in _generated(args)},
    }


def _generated(args: LraRunArguments) -> list[str]:
    """The fields of the generator that say what the examples are like; counts stand elsewhere."""
    if args.lra.task in ("pathfinder", "pathx"):
        return ["pathfinder_contour_length"]
    if args.lra.task != "listops" or not args.lra.is_drawn("listops"):
        return []
    likeness = ("min_length", "max_length", "max_depth", "max_args", "operator_share")
    return [f"listops_{name}" for name in likeness]


def _published_config(args: LraRunArguments, values: Mapping[str, Any]) -> LraConfig:
    task, preset = TASKS[args.lra.task], PRESETS[args.lra.preset]
    model = ModelArguments(attention=args.model.attention, model=dict(values.get("model", {})))
    length = max_length(LraArguments(max_length=values.get("max_length")), task)
    return build_lra_config(model, preset, task, length)


def _model_values(config: LraConfig) -> dict[str, Any]:
    """The fields of head and trunk; the table of positions is as long as max_length says."""
    trunk = config.encoder.settle(is_decoder=False).to_dict()
    if trunk.get(_KEY_HEADS) == trunk["num_attention_heads"]:
        del trunk[_KEY_HEADS]  # there are as many of them unless something else is asked for
    values = {**config.to_dict(), **trunk}
    return {name: value for name, value in values.items() if name not in _NOT_COMPARED}


def _compared(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {_shown(here.get(name))} instead of {_shown(there.get(name))}"
        for name in {**there, **here}
        if here.get(name) != there.get(name)
    ]


def _cast(kind: type, name: str, values: Mapping[str, Any]) -> Any:
    """A published value as the field's type has it, or the field's default."""
    field = next(f for f in dataclasses.fields(kind) if f.name == name)
    if name in values:
        return cast_value(values[name], get_type_hints(kind)[name])
    return (
        field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    )


def _shown(value: Any) -> str:
    value = getattr(value, "value", value)
    if isinstance(value, int | float) and value == int(value) and not isinstance(value, bool):
        return f"{int(value):,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
