"""Checkpoints in GGUF files, whose weights have fewer bits until they are read."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import GgufConfig, PreTrainedModel
from transformers.utils.import_utils import is_gguf_available


@contextmanager
def gguf_errors(keywords: dict[str, Any]) -> Iterator[None]:
    """Inside the block a GGUF file is read, if keywords name one.

    Raises:
        ValueError: the package that reads it is missing, or the file is damaged or none of GGUF.
    """
    file = keywords.get("gguf_file")
    if file is None:
        yield
        return
    if not is_gguf_available():
        raise ValueError(
            f"gguf_file={file!r} is read by the package gguf, which is not installed: "
            "pip install 'hf-linear-attn[gguf]'"
        )
    try:
        yield
    except (ValueError, IndexError, KeyError, TypeError, struct.error) as error:
        # Its header is read by offsets: what a damaged one raises is anybody's guess.
        raise ValueError(
            f"gguf_file={file!r} cannot be read: {error or type(error).__name__}. It is damaged, "
            "not whole, or of an architecture that Transformers does not read from GGUF."
        ) from error


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
