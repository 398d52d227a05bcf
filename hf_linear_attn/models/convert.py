"""`convert`: a model of ours from another model, in memory or on disk."""

import os
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.foreign import convert_in_memory, load_foreign, read_config
from hf_linear_attn.models.foreign_config import weight_map
from hf_linear_attn.models.weight_maps import head_of, head_of_class


def convert(source: Any, to: str, *, config: LinearAttnConfig | None = None, **fields: Any) -> Any:
    """A model of ours with the weights of another one.

    Args:
        source: a model in memory, of Transformers or of ours, which is never changed, or the path
            or Hub name of one.
        to: variant: "cosformer", "transnormer", "nystrom", "linear_transformer" or "softmax".
        config: a config of that variant; what was set in it holds, the rest follows the source.
        **fields: config fields, such as `layer_attention`, `cos_horizon` or
            `max_position_embeddings`, and `dtype`; for a path also keywords of `from_pretrained`.

    Returns:
        The model with the source's head, in evaluation mode; `conversion_report` lists every
        tensor.

    Raises:
        ValueError: an unknown variant, or a source that cannot be converted.
    """
    if isinstance(source, PreTrainedModel):
        made = variant_class(to, head_of_class(type(source)))
        return convert_in_memory(source, made, config, fields)
    if not isinstance(source, str | os.PathLike):
        raise ValueError(
            f"source must be a model of Transformers, or the path or Hub name of one; got a "
            f"{type(source).__name__}."
        )
    found = read_config(source, fields)
    made = variant_class(to, head_in_config(found, in_gguf="gguf_file" in fields))
    return load_foreign(made, source, found, config, fields)


def head_in_config(config: PreTrainedConfig, *, in_gguf: bool = False) -> str:
    """The head of a checkpoint, by the class that its config names.

    Args:
        config: of the checkpoint.
        in_gguf: it was read from a GGUF file, which never names a class. The decoders with a weight
            map are language models there.

    Raises:
        ValueError: it names none.
    """
    if not config.architectures and in_gguf and weight_map(config.model_type).is_decoder:
        return "ForCausalLM"
    if not config.architectures:
        raise ValueError(
            "the checkpoint's config.json names no class in `architectures`, which says what head "
            'it has: add it, such as "architectures": ["BertForMaskedLM"], or call from_pretrained '
            "of the class you want."
        )
    return head_of(config.architectures[0])


def variant_class(variant: str, head: str) -> Any:
    """The model class of a variant with a head.

    Args:
        variant: a value of `--attention`.
        head: end of the class's name, such as "ForMaskedLM"; "Model" = none.

    Raises:
        ValueError: no such variant.
    """
    from hf_linear_attn import models

    if variant not in models.CONFIG_CLASSES:
        hint = did_you_mean(variant, models.CONFIG_CLASSES)
        raise ValueError(
            f"unknown variant {variant!r}; known: {', '.join(models.CONFIG_CLASSES)}.{hint}"
        )
    name = models.CONFIG_CLASSES[variant].__name__.removesuffix("Config")
    return getattr(models, name + head)
