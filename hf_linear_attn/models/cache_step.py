"""One call's way through a cache: is it the model's, what is in it, reading and filling it."""

from typing import Any, cast

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, EncoderDecoderCache

from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.hf_internals import CacheLayerMixin, DynamicLayer
from hf_linear_attn.models.cache import (
    LAYER_CLASSES,
    KeysLayer,
    Seen,
    StateLayer,
    WindowLayer,
)
from hf_linear_attn.models.configuration import LinearAttnConfig


def fit_cache(cache: Any, config: LinearAttnConfig, batch: int, device: torch.device) -> None:
    """See that a cache is the model's and the batch's.

    An empty `DynamicCache()` made without a config gets the model's layers.

    Args:
        cache: what a caller passed.
        config: the model's.
        batch: rows of the input.
        device: the model's.

    Raises:
        ValueError: it is no cache, or was made for another model, batch or device, or is torn.
    """
    if not isinstance(cache, Cache) or isinstance(cache, EncoderDecoderCache):
        raise ValueError(
            f"cache must be a Cache of Transformers for one decoder; got {type(cache).__name__}. "
            "Use DynamicCache(config=model.config), or the `cache` an earlier call returned."
        )
    if not cache.layers and cache.layer_class_to_replicate is DynamicLayer:
        cache.layers = DynamicCache(config=config).layers
        cache.layer_class_to_replicate = None
    found = [type(layer) for layer in cache.layers]
    wanted = [LAYER_CLASSES[name] for name in config.layer_types or []]
    if found != wanted:
        raise ValueError(
            f"the cache was made for another model: its layers are {_names(found)}, this model's "
            f"are {_names(wanted)}. Use DynamicCache(config=model.config)."
        )
    _check_contents(cache, batch)
    if cache.offloading and KeysLayer in found and device.type != "cuda":
        raise ValueError(
            "an offloaded cache moves the keys of softmax layers from the GPU to the CPU; the "
            f"model is on {device.type!r}. Leave cache_implementation='offloaded' out."
        )


def _check_contents(cache: Cache, batch: int) -> None:
    lengths = [layer.get_seq_length() for layer in cast(list[CacheLayerMixin], cache.layers)]
    # Compared, not gathered in a set: a compiled graph would hold for one length alone.
    if any(length != lengths[0] for length in lengths):
        raise ValueError(
            f"the layers of the cache hold different numbers of tokens ({sorted(set(lengths))}): "
            "something broke off between them. Begin with a new cache, or an earlier copy."
        )
    if getattr(cache, "call_is_open", False) and lengths[0]:
        raise ValueError(
            "a call with this cache broke off inside the model, after layers had taken up its "
            "tokens. Begin with a new cache, or a copy from before that call."
        )
    seen = seen_tokens(cache)
    if seen is not None and seen.real_tokens.shape[0] != batch:
        raise ValueError(
            f"the cache holds {seen.real_tokens.shape[0]} rows, the input has {batch}. Use "
            "cache.batch_repeat_interleave or batch_select_indices, or a new cache."
        )


def _names(classes: list[Any]) -> str:
    return "[" + ", ".join(c.__name__ for c in classes) + "]"


def seen_tokens(cache: Cache | None) -> Seen | None:
    """What is known of the tokens in a cache that fits; None if there are none."""
    return None if cache is None else cast(StateLayer | KeysLayer, cache.layers[0]).seen


class CacheStep:
    """One call's way through a cache: reads each layer, and hands it what it has to keep.

    Args:
        cache: one that fits (`fit_cache`).
        mask: bool (batch, new tokens) or None.
        positions: int (batch or 1, new tokens).
        batch: rows.
    """

    def __init__(self, cache: Cache, mask: Tensor | None, positions: Tensor, batch: int):
        self.cache, self.positions = cache, positions
        self.length = positions.shape[1]
        before = seen_tokens(cache)
        if before is not None and any(isinstance(layer, WindowLayer) for layer in cache.layers):
            _check_rising(positions, mask, before)
        self.seen = count_on(before, mask, positions.expand(batch, -1))

    def _open(self) -> None:
        # Until `close`: layers that have the new tokens stand beside others that do not.
        cast(Any, self.cache).call_is_open = True

    def close(self) -> None:
        """Every layer has taken up the new tokens."""
        cast(Any, self.cache).call_is_open = False

    def attend(
        self, mechanism: Any, layer_idx: int, q: Tensor, k: Tensor, v: Tensor,
        tokens: dict[str, Any],
    ) -> Tensor:  # fmt: skip
        """Causal attention of the new tokens to themselves and to those in the cache.

        Args:
            mechanism: the layer's `Attention`.
            layer_idx: the layer.
            q, k, v: (batch, heads, new tokens, head_dim).
            tokens: the mechanism's keywords for the new tokens.
        """
        layer = self.cache.layers[layer_idx]
        if not isinstance(layer, KeysLayer):
            assert isinstance(layer, StateLayer)
            out, state = mechanism(q, k, v, causal=True, state=layer.state, **tokens)
            self._open()
            layer.advance(state, self.seen, self.length)
            return out
        positions = self.positions
        self._open()
        # Through the cache and not the layer: the cache moves offloaded layers.
        k, v = self.cache.update(k, v, layer_idx, positions=positions, mask=tokens["key_mask"])
        assert layer.positions is not None
        out, _ = mechanism(
            q, k, v, causal=True, key_mask=layer.mask, query_positions=positions,
            key_positions=layer.positions.clamp_min(0),
        )  # fmt: skip
        return out


def _check_rising(positions: Tensor, mask: Tensor | None, before: Seen) -> None:
    """Refuse positions that are taken already, for a block holds one token a position."""
    taken = positions < before.next_position[:, None]
    message = "positions fall behind those in the cache"
    if any_wrong(taken if mask is None else taken & mask, message):
        raise ValueError(
            f"position_ids begin at {positions[:, 0].tolist()}, but the tokens in the cache have "
            f"positions up to {(before.next_position - 1).tolist()}: blocks need positions that "
            "rise. Leave position_ids out to have them counted on."
        )


def count_on(before: Seen | None, mask: Tensor | None, positions: Tensor) -> Seen:
    """`before` and the tokens of this call."""
    batch, length = positions.shape
    if before is None:
        zeros = torch.zeros(batch, dtype=torch.long, device=positions.device)
        before = Seen(zeros, zeros)
    if mask is None:
        return Seen(before.real_tokens + length, positions[:, -1] + 1)
    following = torch.where(mask, positions + 1, -1).amax(1)
    return Seen(
        before.real_tokens + mask.sum(1),
        torch.where(following < 0, before.next_position, following),
    )
