"""Weights as others hand them on: files stay in their folder, tensors hold numbers."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers.utils import (
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)

# PEFT's names.
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_ADAPTER_PICKLE = "adapter_model.bin"
_WHOLE = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)
# A pickle, and the files beside which nobody reads it.
_PICKLES = {
    WEIGHTS_NAME: _WHOLE,
    WEIGHTS_INDEX_NAME: _WHOLE,
    _ADAPTER_PICKLE: (ADAPTER_WEIGHTS,),
}


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


def check_no_pickle(source: Any) -> None:
    """Refuse a folder whose weights, or those of its adapter, are there as a pickle alone.

    Args:
        source: a folder; a name on the Hub passes.

    Raises:
        ValueError: names the file, and says how to make safetensors of it.
    """
    folder = Path(str(source))
    for pickled, sound in _PICKLES.items():
        if pickled == _ADAPTER_PICKLE and not (folder / ADAPTER_CONFIG).is_file():
            continue  # nobody looks for it
        if (folder / pickled).is_file() and not any((folder / name).is_file() for name in sound):
            raise ValueError(
                f"{source} holds {pickled} and no {sound[0]}. A pickle is a program and is not "
                "read here; if you trust it, let Transformers make safetensors of it: load the "
                "model with its own class and from_pretrained, and save it with save_pretrained."
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
