"""The model of a Long Range Arena run: a trunk under the head of the preset."""

from typing import Any

from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from hf_linear_attn.models import CONFIG_CLASSES
from hf_linear_attn.models.lra_config import LraConfig
from hf_linear_attn.training.arguments import ModelArguments
from hf_linear_attn.training.lra.presets import Preset
from hf_linear_attn.training.lra.tasks import LraTask
from hf_linear_attn.training.model_setup import (
    build_config,
    build_model,
    model_fields,
)
from hf_linear_attn.training.saved_model_setup import check_saved_files

_FROM_SYMBOLS = "vocab_size"


def build_lra_config(
    args: ModelArguments, preset: Preset, task: LraTask, max_length: int
) -> LraConfig:
    """The config of the model to train, checked.

    Args:
        args: which trunk, or which saved model.
        preset: gives the head, and the dropout of softmax attention where none is given.
        task: gives symbols and classes.
        max_length: longest tower in symbols; the model takes one more where a CLS vector stands
            before it.

    Raises:
        ValueError: a tokenizer or vocabulary (the symbols are fixed), a trunk that is too short or
            contradictory, or a saved model of another task or preset.
    """
    _refuse_tokenizer(args)
    if args.model_name_or_path is not None:
        return _saved_config(args, preset, task, max_length)
    head = preset.head_fields(task.name)
    needed = max_length + (head["pooling"] == "cls")
    trunk = build_config(args, **_trunk_fields(args, preset, task, needed))
    _check_length(trunk, needed)
    labels = dict(enumerate(task.classes))
    return LraConfig(
        trunk=trunk,
        task=task.name,
        preset=preset.name,
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
        **head,
    )


def build_lra_model(
    args: ModelArguments, config: LraConfig, *, shared: bool = False
) -> PreTrainedModel:
    """A model with new weights from torch's current seed, or the saved one.

    Args:
        args, shared: see `build_model`.
        config: of `build_lra_config`.

    Raises:
        ValueError: the saved weights are not those of the config.
    """
    auto_class: Any = AutoModelForSequenceClassification
    return build_model(args, config, auto_class, shared=shared)  # pyright: ignore


def _trunk_fields(
    args: ModelArguments, preset: Preset, task: LraTask, needed: int
) -> dict[str, Any]:
    given = model_fields(args)
    if _FROM_SYMBOLS in given:
        raise ValueError(
            f"vocab_size: the task {task.name} has the {task.symbols.size} ids of its fixed table "
            f"of {task.symbols.name}; leave it out of the model's fields"
        )
    fields: dict[str, Any] = {
        "vocab_size": task.symbols.size,
        "pad_token_id": task.symbols.pad,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if "max_position_embeddings" not in given:
        fields["max_position_embeddings"] = needed
    if args.attention == "softmax" and "attention_probs_dropout_prob" not in given:
        fields["attention_probs_dropout_prob"] = preset.softmax_dropout[task.name]
    return fields


def _check_length(trunk: Any, needed: int) -> None:
    limits = {"max_position_embeddings": trunk.max_position_embeddings}
    horizon = getattr(trunk, "cos_horizon", None)
    if isinstance(horizon, int):
        limits["cos_horizon"] = horizon
    for name, limit in limits.items():
        if limit < needed:
            raise ValueError(
                f"{name} of the model is {limit}, and examples have up to {needed} positions (a "
                f"CLS vector included); raise it, or lower max_length"
            )


def _refuse_tokenizer(args: ModelArguments) -> None:
    default = ModelArguments()
    for name in ("tokenizer_name", "vocab_size"):
        if getattr(args, name) != getattr(default, name):
            raise ValueError(
                f"{name}: the tasks of Long Range Arena have fixed tables of symbols and no "
                "tokenizer; leave it out"
            )


def _saved_config(
    args: ModelArguments, preset: Preset, task: LraTask, max_length: int
) -> LraConfig:
    source = str(args.model_name_or_path)
    check_saved_files(source)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"model_name_or_path {source} cannot be read: {error}") from error
    if not isinstance(config, LraConfig):
        raise ValueError(
            f"model_name_or_path {source} is of type {config.model_type}; expected a model that "
            "this recipe has saved, linear_attn_lra"
        )
    kind = CONFIG_CLASSES.get(args.attention)
    for name, got, wanted in (
        ("task", config.task, task.name),
        ("preset", config.preset, preset.name),
        ("attention", config.encoder.model_type, kind.model_type if kind else args.attention),
    ):
        if got != wanted:
            raise ValueError(f"model_name_or_path {source} has the {name} {got}, not {wanted}")
    for name, value in model_fields(args).items():
        if getattr(config.encoder, name, None) != value:
            raise ValueError(
                f"{name} {value!r} is not that of the saved model {source} "
                f"({getattr(config.encoder, name, None)!r}); leave it out"
            )
    _check_length(config.encoder, max_length + (config.pooling == "cls"))
    return config
