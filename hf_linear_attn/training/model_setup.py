"""The model of a recipe: a new one from its config, or a saved one to go on from."""

from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_linear_attn.attention.registry import get_attention
from hf_linear_attn.models import CONFIG_CLASSES, LinearAttnConfig
from hf_linear_attn.training.arguments import ModelArguments, parse_overrides
from hf_linear_attn.training.casting import did_you_mean
from hf_linear_attn.training.memory import memory_bytes
from hf_linear_attn.training.saved_model_setup import apply_to_saved, load_saved, saved_config
from hf_linear_attn.training.token_ids import id_bound

# Fields of a config.json that say what it is, which `attention` decides.
_NOT_TO_CHOOSE = (
    "_commit_hash", "_name_or_path", "architectures", "auto_map", "custom_pipelines", "model_type",
    "name_or_path", "transformers_version",
)  # fmt: skip
_FROM_TOKENIZER = ("pad_token_id", "bos_token_id", "eos_token_id")


def model_fields(args: ModelArguments) -> dict[str, Any]:
    """The config fields asked for: `model:` with `config_overrides` over it.

    Raises:
        ValueError: for token ids, which only the tokenizer decides, and for what is no choice.
    """
    fields = {**(args.model or {}), **parse_overrides(args.config_overrides or "")}
    for name in _FROM_TOKENIZER:
        if name in fields:
            raise ValueError(f"{name} comes from the tokenizer; leave it out of the model's fields")
    for name in _NOT_TO_CHOOSE:
        if name in fields:
            raise ValueError(f"{name} follows from --attention; leave it out of the model's fields")
    return fields


def build_config(
    args: ModelArguments, tokenizer: PreTrainedTokenizerBase | None = None, **task_fields: Any
) -> LinearAttnConfig:
    """The config of the model to train, checked.

    Args:
        args: which model.
        tokenizer: gives the token ids and, where it is not among the fields, the vocabulary's
            size. None builds a draft, so that mistakes show before any data are read.
        task_fields: what the recipe decides, such as `id2label` and `label2id`; a saved model takes
            them on.

    Raises:
        ValueError: unknown attention or field, a contradiction in the fields, a saved model of
            another attention, a field that would change what a saved model computes, or a
            vocabulary smaller than the tokenizer's.
    """
    fields = model_fields(args)
    if args.model_name_or_path is not None:
        config = saved_config(
            args.model_name_or_path, args.attention, _config_class(args.attention)
        )
        apply_to_saved(config, fields, args.model_name_or_path)
        for name, value in task_fields.items():
            setattr(config, name, value)
    else:
        if tokenizer is not None:
            fields.setdefault("vocab_size", id_bound(tokenizer))
            fields |= {name: getattr(tokenizer, name) for name in _FROM_TOKENIZER}
        config = _config_class(args.attention)(**fields, **task_fields)
    needed = 0 if tokenizer is None else id_bound(tokenizer)
    if config.vocab_size < needed:
        raise ValueError(
            f"the model has a vocabulary of {config.vocab_size} and the tokenizer of "
            f"{needed}: raise vocab_size of the model or choose another tokenizer"
        )
    return config


def check_kind(config: LinearAttnConfig, args: ModelArguments, *, is_decoder: bool) -> None:
    """Raise ValueError if the saved model is an encoder where a decoder is trained, or reversed."""
    if args.model_name_or_path is None or config.is_decoder in (None, is_decoder):
        return
    kinds = ("encoders, such as masked language models", "decoders, causal language models")
    raise ValueError(
        f"model_name_or_path {args.model_name_or_path} is one of the {kinds[not is_decoder]}; this "
        f"recipe trains {kinds[is_decoder]}: choose another saved model or another recipe"
    )


def check_block_size(
    config: LinearAttnConfig, block_size: int, argument: str = "block_size"
) -> None:
    """Raise ValueError if examples of `block_size` tokens are longer than the model takes.

    Args:
        config: of the model.
        block_size: in tokens.
        argument: what the recipe calls it.
    """
    for name, limit in _length_limits(config).items():
        if block_size > limit:
            raise ValueError(
                f"{argument} {block_size} is above the model's {name} of {limit}: lower {argument} "
                f"or raise it, for example with --config_overrides {name}={block_size}"
            )


def build_model(
    args: ModelArguments, config: LinearAttnConfig, auto_class: Any, *, shared: bool = False
) -> PreTrainedModel:
    """A model with new weights from torch's current seed, or the saved one.

    Args:
        args: which model.
        config: of `build_config`.
        auto_class: of Transformers, such as `AutoModelForMaskedLM`. Where the saved model is of
            another kind, its trunk is taken and the head is new.
        shared: several machines may have a part of the weights each (`engines.shares_weights`): the
            memory of this one says nothing of what fits.

    Raises:
        ValueError: the saved weights are not those of the config, or hold what is no number; or the
            new ones do not fit into the machine's memory.
    """
    if not shared:
        check_memory(config, auto_class)
    if args.model_name_or_path is not None:
        return load_saved(args.model_name_or_path, config, auto_class)
    return auto_class.from_config(config)


def check_memory(config: LinearAttnConfig, auto_class: Any) -> None:
    """Raise ValueError for a model whose weights alone are larger than the machine's memory.

    Args:
        config: of the model.
        auto_class: of Transformers, such as `AutoModelForMaskedLM`.
    """
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        weights = auto_class.from_config(config).parameters()
        needed = sum(p.numel() * p.element_size() for p in weights)
    there = memory_bytes()
    if needed > there:
        raise ValueError(
            f"the weights of this model take {needed / 1e9:,.1f} GB, and this machine has "
            f"{there / 1e9:,.1f} GB of memory: lower the sizes among the model's fields"
        )


def attentions_for(args: ModelArguments, *, is_decoder: bool = False) -> list[str]:
    """The other attentions that take the same fields, for a comparison run.

    A saved model has none: its weights are those of one attention.
    """
    if args.model_name_or_path is not None:
        return []
    return [
        name
        for name, config_class in CONFIG_CLASSES.items()
        if name != args.attention and _accepts(config_class, model_fields(args), is_decoder)
    ]


def longest_input(config: LinearAttnConfig) -> int | None:
    """The most tokens a model of this config takes; None where it has no limit."""
    return min(_length_limits(config).values(), default=None)


def _length_limits(config: LinearAttnConfig) -> dict[str, int]:
    """The fields that bound a sequence's length: the position table and cosFormer's horizon."""
    limits = {}
    if config.position_embedding_type == "learned":
        limits["max_position_embeddings"] = config.max_position_embeddings
    if "cosformer" in config.attention_names:
        settings = config.attention_settings("cosformer")
        horizon = settings.get("cos_horizon")
        if horizon is None:
            limits["max_position_embeddings"] = config.max_position_embeddings
        elif isinstance(horizon, int):
            limits["cos_horizon"] = horizon
    return limits


def _accepts(
    config_class: type[LinearAttnConfig], fields: dict[str, Any], is_decoder: bool
) -> bool:
    try:
        config = config_class(**fields)
    except ValueError:
        return False
    mechanisms = [get_attention(name) for name in config.attention_names]
    return not is_decoder or all(mechanism.supports_causal for mechanism in mechanisms)


def _config_class(attention: str) -> type[LinearAttnConfig]:
    if attention not in CONFIG_CLASSES:
        known = list(CONFIG_CLASSES)
        raise ValueError(
            f"attention: got {attention!r}, expected one of {', '.join(known)}"
            f"{did_you_mean(attention, known)}"
        )
    return CONFIG_CLASSES[attention]
