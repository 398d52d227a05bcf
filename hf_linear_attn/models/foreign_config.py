"""The config of a model of ours that is to take up another model's weights."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.weight_maps import WeightMap
from hf_linear_attn.models.weight_maps_decoders import (
    GPT2,
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    sliding_window,
)
from hf_linear_attn.models.weight_maps_encoders import BERT, DISTILBERT, ROBERTA

WEIGHT_MAPS: dict[str, WeightMap] = {
    "bert": BERT,
    "camembert": ROBERTA,
    "distilbert": DISTILBERT,
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
}
"""Weight map of each `model_type` of Transformers that can be converted."""

# Weights do not depend on them (of positions only a learned table does): they may be chosen anew.
_FREE = {
    "attention_eps", "attention_probs_dropout_prob", "bos_token_id", "chunk_size",
    "classifier_dropout", "eos_token_id", "hidden_dropout_prob", "id2label", "initializer_range",
    "label2id", "max_position_embeddings", "num_labels", "pad_token_id", "pooling",
    "problem_type", "use_cache",
}  # fmt: skip
_PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")
_TRUNK = {f.name for f in dataclasses.fields(LinearAttnConfig)}
# Of another variant they name its mechanism, which is what a conversion changes.
_MECHANISM = {"layer_attention", "attention_kwargs"}
# How the source was saved, which is not how the new model is.
_NOT_THE_SHAPE = {"architectures", "dtype", "transformers_version"}


def weight_map(model_type: str) -> WeightMap:
    """The weight map of an architecture.

    Raises:
        ValueError: there is none; names those there are.
    """
    if model_type in WEIGHT_MAPS:
        return WEIGHT_MAPS[model_type]
    hint = did_you_mean(model_type, WEIGHT_MAPS)
    raise ValueError(
        f"there is no weight map for checkpoints of type {model_type!r}; known: "
        f"{', '.join(WEIGHT_MAPS)}.{hint}"
    )


def is_own(model_type: str) -> bool:
    """Is this the `model_type` of a variant of ours, or of a subclass of one?"""
    return any(c.model_type == model_type for c in _variants(LinearAttnConfig))


def _variants(config_class: type[LinearAttnConfig]) -> Iterator[type[LinearAttnConfig]]:
    for found in config_class.__subclasses__():
        yield found
        yield from _variants(found)


def foreign_fields(
    config: PreTrainedConfig, config_class: type[LinearAttnConfig]
) -> tuple[dict[str, Any], list[str]]:
    """Fields that a source's config sets in ours, and what has to be said about them.

    Args:
        config: of an architecture with a weight map, or of a variant of ours.
        config_class: of the model to make. Of another variant only the trunk's fields are taken.

    Raises:
        ValueError: an architecture without a weight map, a quantised checkpoint, or a feature that
            the trunk has no place for.
    """
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(
            "this checkpoint is quantised (quantization_config in its config.json); weights of "
            "fewer bits cannot be rearranged. Convert the checkpoint it was made from, and "
            "quantise the result."
        )
    if isinstance(config, LinearAttnConfig):
        same = isinstance(config, config_class)
        names = {f.name for f in dataclasses.fields(config_class)} if same else _TRUNK - _MECHANISM
        fields = {name: getattr(config, name) for name in names - _NOT_THE_SHAPE}
        fields["is_decoder"] = bool(config.is_decoder)
        notes = []
        if same:
            return fields, notes
    else:
        known = weight_map(config.model_type)
        known.check(config)
        fields = {**_shared_fields(config), **known.fields(config), "is_decoder": known.is_decoder}
        notes = _drop_ids_outside(fields)
    notes += _drop_attention_dropout(config, fields)
    dropout = fields["hidden_dropout_prob"]
    if getattr(config, "embd_pdrop", dropout) != dropout:
        notes.append(
            f"dropout behind the embeddings (embd_pdrop) was {config.embd_pdrop} and is now "
            f"that of the layers, {dropout}."
        )
    fields |= {"id2label": config.id2label, "label2id": config.label2id}
    fields["problem_type"] = config.problem_type
    return fields, notes


def translated(config_dict: dict[str, Any], config_class: type[LinearAttnConfig]) -> dict[str, Any]:
    """The fields of the trunk that the config file of another model sets.

    Args:
        config_dict: as read from its config.json.
        config_class: of the model to make.

    Raises:
        ValueError: see `foreign_fields`.
    """
    model_type = config_dict["model_type"]
    if not is_own(model_type):
        weight_map(model_type)
    source = AutoConfig.for_model(**config_dict)
    return foreign_fields(source, config_class)[0]


def _shared_fields(config: Any) -> dict[str, Any]:
    """What all architectures call by one name (some by way of an attribute map)."""
    names = (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "initializer_range", "tie_word_embeddings", *_TOKENS,
    )  # fmt: skip
    return {name: getattr(config, name) for name in names} | {
        "use_cache": getattr(config, "use_cache", True)
    }


def _drop_ids_outside(fields: dict[str, Any]) -> list[str]:
    """Special tokens that the vocabulary does not hold: a config of ours would refuse them."""
    notes = []
    for name in _TOKENS:
        given = fields[name]
        ids = given if isinstance(given, list) else [given]
        if any(i is not None and not 0 <= i < fields["vocab_size"] for i in ids):
            notes.append(
                f"{name} {given} lies outside the vocabulary of {fields['vocab_size']} tokens; "
                "none is set."
            )
            fields[name] = None
    return notes


def _drop_attention_dropout(config: Any, fields: dict[str, Any]) -> list[str]:
    names = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
    rate = next((getattr(config, n) for n in names if getattr(config, n, None)), 0)
    fields["attention_probs_dropout_prob"] = 0.0
    if not rate:
        return []
    return [
        f"dropout on attention weights was {rate} and is 0 now: linear attention has no weights to "
        "drop. attention_probs_dropout_prob sets it for softmax layers."
    ]


def target_config(
    config_class: type[LinearAttnConfig],
    source: PreTrainedConfig,
    given: LinearAttnConfig | None,
    overrides: dict[str, Any],
) -> tuple[LinearAttnConfig, list[str]]:
    """The config of the converted model: the source's shape, with what the user set.

    Args:
        config_class: of the model class.
        source: config of the checkpoint.
        given: a config the user made; what was set in it holds, the rest follows the source.
        overrides: config fields given beside it, which come first.

    Returns:
        The config, and what has to be said about it.

    Raises:
        ValueError: what was set contradicts the weights; names every such field.
    """
    fields, notes = foreign_fields(source, config_class)
    known = {f.name for f in dataclasses.fields(config_class)} | {"num_labels"}
    named = () if given is None else given.given_fields & known
    wanted = {name: getattr(given, name) for name in named} | overrides
    _refuse_contradictions(config_class, fields, wanted)
    _refuse_beyond_window(source, wanted)
    if wanted.get("id2label") and wanted.get("label2id") is None:
        wanted["label2id"] = {label: int(i) for i, label in wanted["id2label"].items()}
    other_number = wanted.get("num_labels", source.num_labels) != source.num_labels
    if other_number or "id2label" in wanted or "label2id" in wanted:
        # Names of the source's classes would contradict those of the new ones.
        fields = {k: v for k, v in fields.items() if k not in ("id2label", "label2id")}
    return config_class(**{**fields, **wanted}), notes


def _refuse_beyond_window(source: Any, wanted: dict[str, Any]) -> None:
    """A window as long as the source's texts is none there, and one in longer texts."""
    positions = wanted.get("max_position_embeddings")
    window = None if isinstance(source, LinearAttnConfig) else sliding_window(source)
    if window is not None and isinstance(positions, int) and positions > window:
        raise ValueError(
            f"max_position_embeddings={positions}: this {source.model_type} checkpoint looks back "
            f"{window} tokens (sliding_window), and none of these models has a window. Leave it "
            f"out, or give at most {window}."
        )


def _refuse_contradictions(
    config_class: type[LinearAttnConfig], fields: dict[str, Any], wanted: dict[str, Any]
) -> None:
    rows, wanted_rows = fields["max_position_embeddings"], wanted.get("max_position_embeddings")
    table = fields["position_embedding_type"] == "learned"
    if table and isinstance(wanted_rows, int) and wanted_rows < rows:
        raise ValueError(
            f"max_position_embeddings={wanted_rows} is below the checkpoint's {rows}: its table of "
            "positions can be extended and not be cut. Leave it out, or give more; shorter inputs "
            "need no shorter table."
        )
    open_fields = config_class(**fields).open_defaults(fields["is_decoder"])
    open_fields["rope_parameters"] = {}

    def fits(name: str, value: Any) -> bool:
        found, value = (
            open_fields.get(name) if given is None else given for given in (fields[name], value)
        )
        if name == "rope_parameters":
            found, value = ({**_PLAIN_ROPE, **(given or {})} for given in (found, value))
        return value == found or (name == "tie_word_embeddings" and not value)

    wrong = [
        f"{name}={value!r} (the checkpoint: {fields[name]!r})"
        for name, value in wanted.items()
        if name in fields.keys() & _TRUNK - _MECHANISM - _FREE and not fits(name, value)
    ]
    if wrong:
        raise ValueError(
            f"the config does not fit the checkpoint: {', '.join(wrong)}. Leave these fields out: "
            "what is not set follows the checkpoint."
        )
