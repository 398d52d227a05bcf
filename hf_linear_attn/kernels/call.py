"""One call of linear attention, as the kernels want it: sizes, strides, tables, launch options."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hf_linear_attn.kernels.configurations import (
    Configuration,
    configuration,
    head_size,
    target_of,
)
from hf_linear_attn.kernels.documents import carried_documents
from hf_linear_attn.kernels.launching import operand_type
from hf_linear_attn.linear_attention_types import Inputs, Settings


class Call:
    """Sizes and operands of a call; letters as in `hf_linear_attn.ops.operands`.

    Args:
        x, settings: as given to `linear_attention`, checked; `support.why_not` found nothing.
    """

    def __init__(self, x: Inputs, settings: Settings):
        self.x, self.settings = x, settings
        self.B, self.H, self.N, self.D = x.q.shape
        self.G, self.M, self.Dv = x.k.shape[1], x.k.shape[2], x.v.shape[3]
        self.R = self.H // self.G
        self.F = self.D if x.q_angles is None else 2 * self.D
        self.E = self.Dv + settings.normalize
        self.inner = settings.causal or x.segments is not None
        self.two_ways = x.segments is not None and not settings.causal
        self.chunk = self.configuration("output").chunk
        self.query_chunks = self.tiles(self.N, self.chunk)
        self.key_chunks = self.tiles(self.M, self.chunk)
        self.q, self.k, self.v = (self.rows(t) for t in (x.q, x.k, x.v))
        self.mask = None if x.key_mask is None else x.key_mask.contiguous().view(torch.uint8)
        self.segments = None if x.segments is None else x.segments.long().contiguous()
        self.q_turn, self.k_turn = tables(x.q_angles), tables(x.k_angles)

    @staticmethod
    def tiles(length: int, tile: int) -> int:
        """How many tiles cover a length."""
        return -(-length // tile)

    def rows(self, x: Tensor) -> Tensor:
        """x, or a copy of contiguous rows.

        A row must be contiguous and a chunk span less than 2³¹ elements; other strides are free.
        """
        x = x.resolve_neg()
        if x.stride(-1) == 1 and x.stride(2) * self.chunk < 2**31:
            return x
        return x.contiguous()

    @cached_property
    def turn_steps(self) -> tuple[int, int]:
        """Strides of the batch in the tables of cos and sin, of queries and keys."""
        tables = (self.q_turn[0], self.k_turn[0])
        steps = [0 if t is None or t.shape[0] == 1 else t.shape[1] for t in tables]
        return steps[0], steps[1]

    @cached_property
    def borders(self) -> tuple[Tensor | None, Tensor | None]:
        """Documents of the states at the borders of chunks: prefix, suffix."""
        if self.segments is None:
            return None, None
        before, behind = carried_documents(self.segments, self.x.key_mask, self.chunk)
        return before.contiguous(), behind.contiguous() if self.two_ways else None

    @property
    def states_shape(self) -> tuple[int, int, int]:
        """(chunks, B·G, F·E); one chunk for all where a chunk has no pairs of its own."""
        return self.key_chunks if self.inner else 1, self.B * self.G, self.F * self.E

    @cached_property
    def operands(self) -> dict[str, Any]:
        """What kernels take of a call, by the names of their arguments."""
        before, behind = self.borders
        return {
            "q": self.q, "k": self.k, "v": self.v,
            "cos_q": self.q_turn[0], "sin_q": self.q_turn[1], "cos_q_b": self.turn_steps[0],
            "cos_k": self.k_turn[0], "sin_k": self.k_turn[1], "cos_k_b": self.turn_steps[1],
            "mask": self.mask, "segments": self.segments, "before": before, "behind": behind,
            **steps("q", self.q), **steps("k", self.k), **steps("v", self.v),
            "N": self.N, "H": self.H, "G": self.G, "R": self.R, "eps": self.settings.eps,
            "D": self.D, "DV": self.Dv, "MAP": self.settings.feature_map,
            "TY": operand_type(self.x.q.dtype), "NORM": self.settings.normalize,
            "CAUSAL": self.settings.causal, "INNER": self.inner,
        }  # fmt: skip

    def configuration(self, kernel: str) -> Configuration:
        """Tiles and launch options of a kernel."""
        return call_configuration(kernel, self.x)

    def launch(self, kernel: Any, grid: tuple[int, ...], **own: Any) -> None:
        """Run a kernel.

        Args:
            kernel: made by `triton.jit`; what its arguments are called says what it gets.
            grid: its programs.
            own: arguments that the call's operands do not have, or have otherwise.
        """
        found = self.configuration(kernel.__name__)
        tiles = {"C": found.chunk, "BK": found.features, "BV": found.columns}
        given = {**self.operands, **tiles, **own}
        arguments = {name: given[name] for name in kernel.arg_names}
        kernel[grid](**arguments, **launch_options(found, self.x.q.device))


def call_configuration(kernel: str, x: Inputs) -> Configuration:
    """Tiles and launch options of a kernel for a call that `support.why_not` lets through."""
    size, target = head_size(x.q.shape[-1], x.v.shape[-1]), target_of(x.q.device)
    assert size is not None
    assert target is not None
    found = configuration(kernel, x.q.dtype, size, target)
    assert found is not None
    return found


def launch_options(found: Configuration, device: torch.device) -> dict[str, int]:
    """Launch options of a configuration on a device that has kernels."""
    target = target_of(device)
    assert target is not None
    return found.options(target)


def steps(name: str, x: Tensor) -> dict[str, int]:
    """Strides of batch, head and token, as kernels call them."""
    return {f"{name}_b": x.stride(0), f"{name}_h": x.stride(1), f"{name}_n": x.stride(2)}


def tables(angles: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """cos and sin of angles (B or 1, length), fp32, contiguous; None without angles."""
    if angles is None:
        return None, None
    angles = angles.float().contiguous()
    return angles.cos(), angles.sin()
