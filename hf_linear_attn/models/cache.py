"""What a decoder remembers between calls, as layers of Transformers' caches.

`DynamicCache(config=model.config)` builds them by the config's `layer_types`: a state of fixed size
for linear layers, the current block for block attention, all keys for softmax. Each layer counts
its own tokens, and knows of every row how many were real and which position comes next, so that a
later call needs neither the mask nor the positions of the earlier ones.
"""

import copy
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from hf_linear_attn.hf_internals import (
    STATIC_LAYER_TYPE_MAPPING,
    CacheLayerMixin,
    DynamicLayer,
)
from hf_linear_attn.namespace import NAMESPACE

_OWNER = NAMESPACE.removeprefix("hf_")

LAYER_TYPES = {
    "recurrent state": f"{_OWNER}_state",
    "block window": f"{_OWNER}_window",
    "full keys": f"{_OWNER}_keys",
}
"""Name of the cache layer for each `cache_kind` of a mechanism."""


class Seen(NamedTuple):
    """What is known of the tokens so far, int64 (batch,) each."""

    real_tokens: Tensor
    """how many were no padding"""
    next_position: Tensor
    """position of the next token: one above the last real one, 0 before any"""


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A value with tensors of its own; unlike `copy.deepcopy`, of tensors in a graph, too."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Seen):
        return Seen(*(_copied(x, memo) for x in value))
    return copy.deepcopy(value, memo)


class _Copied:
    """A layer that can be copied while gradients flow through what it keeps."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = memo[id(self)] = copy.copy(self)
        made.__dict__ = {name: _copied(value, memo) for name, value in self.__dict__.items()}
        return made


class StateLayer(_Copied, CacheLayerMixin):
    """The recurrent state of one layer: fp32 (batch, kv_heads, features, value_dim[ + 1]).

    A new state replaces the old one and never overwrites it: a copy of the cache and a gradient
    may still need the old one.
    """

    _layer_type = LAYER_TYPES["recurrent state"]
    is_sliding = False
    supports_early_init = False
    kept: ClassVar[str] = "a recurrent state"

    def __init__(self, max_cache_len: int | None = None, **kwargs: Any):
        # A static cache passes its length; a state holds any number of tokens.
        super().__init__()
        self.state: Tensor | None = None
        self.seen: Seen | None = None
        self.seq_length = 0

    def advance(self, state: Tensor, seen: Seen, length: int) -> None:
        """Take the state after `length` further tokens."""
        self.state, self.seen = state, seen
        self.device = state.device
        self.seq_length += length
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Refused: see `update`."""
        raise ValueError(f"this layer keeps {self.kept}, not keys and values.")

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Refused: `advance` is what this layer takes."""
        self.lazy_initialization(key_states, value_states)

    def get_seq_length(self) -> int:
        """Number of tokens so far, padding included."""
        return self.seq_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of a mask over past and new tokens."""
        return self.seq_length + query_length, 0

    def get_max_length(self) -> int:
        """−1: no end."""
        return -1

    @property
    def batch_size(self) -> int:
        """Rows, or −1 while empty."""
        return -1 if self.state is None else self.state.shape[0]

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        if self.state is not None and self.seen is not None:
            self.state = change(self.state)
            self.seen = Seen(*map(change, self.seen))

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i becomes row beam_idx[i]."""
        self._change(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes `repeats` rows."""
        self._change(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows of `indices`."""
        self._change(lambda x: x[indices.to(x.device)])

    def offload(self) -> None:
        """Move to the CPU."""
        self._change(lambda x: x.to("cpu", non_blocking=True))

    def prefetch(self) -> None:
        """Move back to where it came from."""
        self._change(lambda x: x.to(self.device, non_blocking=True))

    def reset(self) -> None:
        """Forget everything."""
        self.state = self.seen = None
        self.seq_length = 0
        self.is_initialized = False

    def crop(self, tokens_to_remove: int) -> None:
        """Only by 0 tokens.

        Raises:
            ValueError: another number.
        """
        if tokens_to_remove != 0:
            raise ValueError(
                f"a cache with {self.kept} cannot give {abs(tokens_to_remove)} tokens back: they "
                "are summed up in it. Keep a copy (copy.deepcopy) from before them."
            )


class WindowLayer(StateLayer):
    """The current block of block attention: fp32 (batch, kv_heads, block_size, …)."""

    _layer_type = LAYER_TYPES["block window"]
    kept = "the current block"


class KeysLayer(_Copied, DynamicLayer):
    """Transformers' growing keys and values, with the positions that belong to them.

    Keys are kept before any rotation. `positions` is int64 (batch, tokens), −1 at pads.
    """

    _layer_type = LAYER_TYPES["full keys"]

    def __init__(self, **kwargs: Any):
        super().__init__()
        self.positions: Tensor | None = None
        self.padded = False

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values, the new ones behind the old.

        Args:
            key_states, value_states: (batch, kv_heads, new tokens, ·).
            args, kwargs: positions int (batch or 1, new tokens) and mask, bool (batch, new tokens)
                or None.
        """
        positions, mask = kwargs["positions"], kwargs["mask"]
        positions = positions.expand(key_states.shape[0], -1)
        if mask is not None:
            positions = torch.where(mask, positions, -1)
            self.padded = True
        if self.positions is not None:
            positions = torch.cat((self.positions, positions), dim=1)
        self.positions = positions
        if self.is_initialized:
            # An offloading cache fetches the next layer while one is read; where that is a state,
            # which has nothing to fetch, these keys are still where it put them.
            self.prefetch()
        return super().update(key_states, value_states)

    @property
    def mask(self) -> Tensor | None:
        """Bool (batch, tokens), True = real token; None if there was no padding."""
        return self.positions >= 0 if self.padded and self.positions is not None else None

    @property
    def seen(self) -> Seen | None:
        """See `Seen`."""
        if self.positions is None:
            return None
        return Seen((self.positions >= 0).sum(1), self.positions.amax(1) + 1)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.positions, self.padded = None, False

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last −tokens_to_remove tokens."""
        super().crop(tokens_to_remove)
        if self.positions is not None:
            self.positions = self.positions[:, : self.get_seq_length()]

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        if self.positions is not None:
            self.positions = change(self.positions)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Row i becomes row beam_idx[i]."""
        super().reorder_cache(beam_idx)
        self._change(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row becomes `repeats` rows."""
        super().batch_repeat_interleave(repeats)
        self._change(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows of `indices`."""
        super().batch_select_indices(indices)
        self._change(lambda x: x[indices.to(x.device)])


LAYER_CLASSES: dict[str | None, type[CacheLayerMixin]] = {
    layer._layer_type: layer for layer in (StateLayer, WindowLayer, KeysLayer)
}
"""Class of each cache layer by its name in `layer_types`."""


def _refuse_static(max_cache_len: int, **kwargs: Any) -> CacheLayerMixin:
    raise ValueError(
        "a static cache has no room for softmax layers of these models, which keep growing keys. "
        "Leave cache_implementation out, or use DynamicCache(config=model.config)."
    )


# Transformers enters a class into the table of dynamic caches by itself. A state's size is fixed.
STATIC_LAYER_TYPE_MAPPING |= {
    LAYER_TYPES["recurrent state"]: StateLayer,
    LAYER_TYPES["block window"]: WindowLayer,
    LAYER_TYPES["full keys"]: _refuse_static,
}  # pyright: ignore[reportCallIssue]
