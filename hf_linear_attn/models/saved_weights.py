"""Weights as others hand them on: files stay in their folder, tensors hold numbers."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME


def strays(names: Iterable[object]) -> list[object]:
    """Those names of an index that are not of a safetensors file in the same folder."""
    return [name for name in names if not _is_shard(name)]


def check_shards(source: Any) -> None:
    """Refuse a folder whose index sends the reader elsewhere.

    Args:
        source: of `from_pretrained`; what is no folder with an index passes.

    Raises:
        ValueError: the index names a file of another folder, or one that is no safetensors.
    """
    index = Path(str(source)) / SAFE_WEIGHTS_INDEX_NAME
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return  # none, or none that can be read: whoever loads it says so
    shards = content.get("weight_map") if isinstance(content, dict) else None
    found = strays(shards.values()) if isinstance(shards, dict) else []
    if found:
        raise ValueError(
            f"{index} names {found[0]!r}; expected the names of .safetensors files beside it. "
            "Nothing was read."
        )


@contextmanager
def readable_weights(source: Any) -> Iterator[None]:
    """Inside the block a damaged file of weights becomes a ValueError that says whose it is."""
    try:
        yield
    except SafetensorError as error:
        raise ValueError(
            f"the weights of {source} cannot be loaded: they are damaged or cut off ({error}); "
            "save or download them again."
        ) from error


@torch.no_grad()
def check_numbers(model: nn.Module, source: Any) -> None:
    """Refuse weights among which one is NaN or infinite.

    Args:
        model: loaded.
        source: what it was loaded from, for the message.

    Raises:
        ValueError: names the first such tensor.
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            count = int((~torch.isfinite(tensor)).sum())
            raise ValueError(
                f"{source}: {name} holds {count:,} values that are NaN or infinite, so that "
                "nothing can be computed from it; take a checkpoint from before its training "
                "diverged."
            )


def _is_shard(name: object) -> bool:
    if not isinstance(name, str) or not name.endswith(".safetensors"):
        return False
    return name.isprintable() and not {"/", "\\"} & set(name)
