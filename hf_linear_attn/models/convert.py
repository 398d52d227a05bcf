"""`convert`: a model of ours from another model, in memory or on disk."""

from typing import Any

from transformers import AutoConfig, PreTrainedModel

from hf_linear_attn.attention.suggestions import did_you_mean
from hf_linear_attn.models.configuration import LinearAttnConfig
from hf_linear_attn.models.foreign import config_keywords, convert_model
from hf_linear_attn.models.weight_maps import head_of


def convert(source: Any, to: str, *, config: LinearAttnConfig | None = None, **fields: Any) -> Any:
    """A model of ours with the weights of another one.

    Args:
        source: a model in memory, of Transformers or of ours, which is never changed, or the path
            or Hub name of one.
        to: variant: "cosformer", "transnormer", "nystrom", "linear_transformer" or "softmax".
        config: a config of that variant; what was set in it holds, the rest follows the source.
        **fields: config fields, such as `layer_attention`, `cos_horizon` or
            `max_position_embeddings`; for a path also keywords of `from_pretrained`.

    Returns:
        The model with the source's head, in evaluation mode; `conversion_report` lists every
        tensor.

    Raises:
        ValueError: an unknown variant, or a source that cannot be converted.
    """
    if isinstance(source, PreTrainedModel):
        head = head_of(type(source).__name__)
        return convert_model(source, variant_class(to, head), config, fields)[0]
    found = AutoConfig.from_pretrained(source, **config_keywords(fields))
    head = head_of((found.architectures or ["Model"])[0])
    return variant_class(to, head).from_pretrained(source, config=config, **fields)


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
