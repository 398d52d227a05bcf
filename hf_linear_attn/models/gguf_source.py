"""Checkpoints in GGUF files, whose weights have fewer bits until they are read."""

from typing import Any

from transformers import GgufConfig, PreTrainedModel
from transformers.utils.import_utils import is_gguf_available


def check_gguf(keywords: dict[str, Any]) -> None:
    """Raise ValueError if keywords name a GGUF file and the package that reads one is missing."""
    if keywords.get("gguf_file") is not None and not is_gguf_available():
        raise ValueError(
            f"gguf_file={keywords['gguf_file']!r} is read by the package gguf, which is not "
            "installed: pip install 'hf-linear-attn[gguf]'"
        )


def dense_keywords(keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `from_pretrained` with which a GGUF file becomes a model of plain weights.

    Where Transformers has kernels for them it would leave the weights packed, and packed weights
    cannot be rearranged.
    """
    if keywords.get("gguf_file") is None:
        return keywords
    return {**keywords, "quantization_config": GgufConfig(dequantize=True)}


def forget_packing(model: PreTrainedModel) -> None:
    """Drop from a model's config that its weights were packed in a GGUF file."""
    config: Any = model.config
    if isinstance(getattr(config, "quantization_config", None), GgufConfig):
        del config.quantization_config
