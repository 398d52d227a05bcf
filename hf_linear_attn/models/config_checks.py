"""What the fields of a config may hold; every refusal names the field and what is accepted."""

import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from hf_linear_attn.attention.registry import build_attention, check_fields, get_attention
from hf_linear_attn.attention.rope_scaling import check_rope
from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.hf_internals import type_validator

if TYPE_CHECKING:
    from hf_linear_attn.models.configuration import LinearAttnConfig

# Bounds of what can be counted: PyTorch's sizes overflow far above, and a name a layer is listed.
_LARGEST = 2**31 - 1
_LARGEST_FLOAT = torch.finfo(torch.float32).max
_MOST_LAYERS = 10_000
# A model can be built in no other.
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

# What Transformers itself passes to a config beside its fields (loading, saving, labels).
_TRANSFORMERS_KEYWORDS = {
    "_commit_hash",
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "custom_pipelines",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "quantization_config",
    "torch_dtype",
}


def refuse_unknown(
    config: PreTrainedConfig, names: Iterable[str], further: Iterable[str] = ()
) -> None:
    """Refuse what is neither a field of a config nor passed by Transformers.

    Args:
        config: whose fields they are to be.
        names: to look at.
        further: names that are accepted as well.

    Raises:
        ValueError: names the first such name, and the field that it may stand for.
    """
    known = {field.name for field in dataclasses.fields(config)}.union(further)
    for name in names:
        if name not in known and name not in _TRANSFORMERS_KEYWORDS:
            hint = did_you_mean(name, known)
            raise ValueError(f"{type(config).__name__} has no field {name!r}.{hint}")


def check_first(config: "LinearAttnConfig") -> None:
    """Look at the fields that Transformers works with before it checks their types.

    Raises:
        ValueError: names the field, what it holds and what is accepted.
    """
    count, rope = config.num_hidden_layers, config.rope_parameters
    if isinstance(count, int) and count > _MOST_LAYERS:
        raise ValueError(f"num_hidden_layers is {count}; it must be {_MOST_LAYERS} at most.")
    if rope is not None and not isinstance(rope, dict):
        raise ValueError(f"rope_parameters is {rope!r}; it must be a mapping or None.")


def check_config(config: "LinearAttnConfig") -> None:
    """Look at every field.

    Raises:
        ValueError: names the field, what it holds and what is accepted.
    """
    check_types(config)
    check_first(config)
    _check_sizes(config)
    _check_bounds(config)
    _check_words(config)
    _check_positions(config)
    _check_attention(config)


def check_types(config: PreTrainedConfig) -> None:
    """Compare every field with its annotation; Transformers works with some before it does so.

    Raises:
        ValueError: names the field, what it holds and what is accepted.
    """
    hints = _annotations(type(config))
    for field in dataclasses.fields(config):
        try:
            type_validator(field.name, getattr(config, field.name), hints[field.name])
        except TypeError as error:
            raise ValueError(f"{type(config).__name__}: {error}") from None
    _check_dtype("dtype", config.dtype)
    for key in config.id2label or {}:
        if not str(key).isdecimal():
            raise ValueError(f"id2label has the key {key!r}; expected numbers of classes, from 0.")


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    """Types of all fields; those of Transformers are written as text."""
    try:
        return typing.get_type_hints(kind, localns={"torch": torch})
    except NameError:  # of a class of somebody's own
        return {field.name: field.type for field in dataclasses.fields(kind)}


def check_keywords(keywords: dict[str, Any]) -> None:
    """Look at what Transformers takes beside the fields and works with unseen.

    Raises:
        ValueError: names the keyword, what it holds and what is accepted.
    """
    _check_dtype("torch_dtype", keywords.get("torch_dtype"))
    count = keywords.get("num_labels")
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(f"num_labels is {count!r}; expected a number of classes.")


def _check_bounds(config: "LinearAttnConfig") -> None:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, int | float):
            most = _LARGEST if isinstance(value, int) else _LARGEST_FLOAT
            if value > most:
                raise ValueError(f"{field.name} is {value}; it must be {most} at most.")


def _check_dtype(name: str, value: Any) -> None:
    kind = getattr(torch, value, None) if isinstance(value, str) else value
    if value is not None and kind not in _DTYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise ValueError(f"{name} is {value!r}; expected one of {known}.")


def _check_sizes(config: "LinearAttnConfig") -> None:
    positive = (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings",
        "norm_eps", "initializer_range", "chunk_size", "attention_eps", "logit_scale",
    )  # fmt: skip
    for name in positive:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; it must be a number above 0.")
    if config.type_vocab_size < 0:
        raise ValueError(f"type_vocab_size is {config.type_vocab_size}; it must be 0 or more.")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
        rate = getattr(config, name)
        if rate is not None and not 0 <= rate < 1:
            raise ValueError(f"{name} is {rate}; it must lie in [0, 1).")
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    if config.head_dim is None and config.hidden_size % heads:
        raise ValueError(
            f"num_attention_heads ({heads}) does not divide hidden_size ({config.hidden_size}). "
            "Choose a divisor, or give head_dim."
        )
    if groups is not None and heads % groups:
        raise ValueError(
            f"num_key_value_heads ({groups}) does not divide num_attention_heads ({heads})."
        )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name)
        ids = value if isinstance(value, list) else [value]
        if not all(i is None or 0 <= i < config.vocab_size for i in ids):
            raise ValueError(
                f"{name} is {value}; it must be None or an id from 0 to vocab_size - 1 "
                f"({config.vocab_size - 1})."
            )


def _check_words(config: "LinearAttnConfig") -> None:
    for name in ("hidden_act", "glu_act"):
        value = getattr(config, name)
        if value is not None and value != "identity" and value not in ACT2FN:
            hint = did_you_mean(value, ACT2FN)
            raise ValueError(f"{name} is {value!r}; accepted: {', '.join(ACT2FN)}.{hint}")
    if config.glu_act is not None and config.mlp_type != "glu":
        raise ValueError(
            f"glu_act is {config.glu_act!r}, but mlp_type is {config.mlp_type!r}; set "
            "mlp_type='glu', or hidden_act instead."
        )
    check_calls(config)


def check_calls(config: PreTrainedConfig) -> None:
    """Look at what Transformers' own fields ask of every call.

    Raises:
        ValueError: it is not available, or not for every call.
    """
    if config.output_attentions:
        raise ValueError(
            "output_attentions=True in a config would form quadratic weights in every call; pass "
            "output_attentions=True to the calls that need them."
        )
    for name, off in {"chunk_size_feed_forward": 0, "is_encoder_decoder": False}.items():
        if getattr(config, name) not in (off, None):
            raise ValueError(
                f"{name}={getattr(config, name)} is not available in these models; leave it at "
                f"{off}."
            )


def _check_positions(config: "LinearAttnConfig") -> None:
    kind, head_dim = config.position_embedding_type, config.head_dim
    head_dim = config.hidden_size // config.num_attention_heads if head_dim is None else head_dim
    if kind in ("rope", "lrpe") and head_dim % 2:
        raise ValueError(
            f"position_embedding_type={kind!r} turns pairs: head_dim must be even; got {head_dim}."
        )
    if kind == "sinusoidal" and config.hidden_size % 2:
        raise ValueError(
            f"position_embedding_type='sinusoidal' needs an even hidden_size; got "
            f"{config.hidden_size}."
        )
    if config.rope_parameters is None:
        return
    if config.position_embedding_type != "rope":
        raise ValueError(
            f"rope_parameters are given, but position_embedding_type is "
            f"{config.position_embedding_type!r}; set it to 'rope' or leave them out."
        )
    check_rope(config.rope_parameters)


def check_mechanism_types(name: str, fields: dict[str, Any]) -> None:
    """Types of `attention_kwargs`, as the constructor of the mechanism states them."""
    if "num_attention_heads" in fields:
        raise ValueError(
            f"attention_kwargs[{name!r}] sets num_attention_heads, which is the model's; leave it "
            "out."
        )
    for field, parameter in inspect.signature(get_attention(name)).parameters.items():
        wanted = _plain_type(parameter.annotation)
        if field not in fields or wanted is None:
            continue
        try:
            type_validator(field, fields[field], wanted)
        except TypeError as error:
            raise ValueError(f"attention_kwargs[{name!r}]: {error}") from None


def _plain_type(annotation: Any) -> Any:
    """An annotation made of plain types and words alone, whole numbers allowed for floats.

    None for any other one: a mechanism of one's own checks its values itself.
    """
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    parts = typing.get_args(annotation) if union else (annotation,)
    plain = (int, float, bool, str, types.NoneType)
    if not all(part in plain or typing.get_origin(part) is typing.Literal for part in parts):
        return None
    return annotation | int if float in parts else annotation


def _check_attention(config: "LinearAttnConfig") -> None:
    names = config.attention_names
    if names and not all(names):
        raise ValueError(
            f"layer_attention of this {type(config).__name__} names no mechanism; give a "
            "registry name, or use the config of a variant."
        )
    if len(names) != config.num_hidden_layers:
        raise ValueError(
            f"layer_attention names {len(names)} layers, num_hidden_layers is "
            f"{config.num_hidden_layers}; give one name, or one per layer."
        )
    mechanisms = {name: get_attention(name) for name in names}
    for name in config.attention_kwargs or {}:
        if config.is_own(name) or name not in mechanisms:
            raise ValueError(
                f"attention_kwargs has settings for {name!r}, but "
                + (
                    f"that is the mechanism of {type(config).__name__} itself: set its fields "
                    "directly."
                    if config.is_own(name)
                    else f"no layer uses it (layers: {', '.join(sorted(mechanisms))})."
                )
            )
    for name, fields in (config.attention_kwargs or {}).items():
        check_fields(name, fields)
        check_mechanism_types(name, fields)
    for name in mechanisms:
        mechanism = build_attention(name, config.attention_settings(name), config=config)
        if config.is_decoder and not mechanism.supports_causal:
            raise ValueError(f"a decoder cannot use {name!r}: {mechanism.no_causal_form()}")
    wants_dropout = config.attention_probs_dropout_prob > 0
    if wants_dropout and not any(m.supports_dropout for m in mechanisms.values()):
        raise ValueError(
            f"attention_probs_dropout_prob is {config.attention_probs_dropout_prob}, but no "
            "layer has attention weights to drop: linear attention never forms them. Use 0 and "
            "hidden_dropout_prob."
        )
