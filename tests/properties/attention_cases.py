"""Random calls of the mechanisms: sizes, fields, padding, packed documents, positions, dtypes."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import strategies as st

from hf_linear_attn.attention import ATTENTION, build_attention
from hf_linear_attn.attention.registry import attention_fields
from hf_linear_attn.attention.rotary import LRPE, RotaryEmbedding
from tests.properties.choices import evenly
from tests.reference import real_positions

CAUSAL = [name for name, mechanism in ATTENTION.items() if mechanism.supports_causal]
# A field that a new mechanism brings along keeps its default until it has a line here.
FIELDS = {
    "chunk_size": st.integers(1, 24),
    # The second is above many a sum of weights.
    "attention_eps": st.sampled_from([1e-6, 0.5]),
    "feature_map": st.sampled_from([None, "elu_plus_one"]),
    "cos_reweighting": st.booleans(),
    "transnormer_version": st.sampled_from(["t1", "t2"]),
    "xnorm": st.sampled_from(["srmsnorm", "layernorm"]),
    "block_size": st.integers(1, 20),
    "num_landmarks": st.integers(1, 16),
    "pinv_iterations": st.integers(1, 6),
    "conv_kernel_size": st.sampled_from([None, 1, 3, 9]),
}
ROWS = ("full", "left", "right", "holes", "holes", "empty")


def lengths(least=1):
    """Of sequences: many short ones, some of up to 80 tokens."""
    return st.one_of(st.integers(least, 9), st.integers(least, 80))


def off_zero(drawn, *shape):
    """Normal float64 numbers, none of them near 0.

    Where one feature alone is not 0 it cancels between the weights and their sum, and what rounding
    leaves of its gradient is divided by it.
    """
    x = torch.randn(*shape, generator=drawn, dtype=torch.float64)
    return x + 0.1 * x.sign()


@dataclass(frozen=True)
class Case:
    """A call in words and numbers; tensors follow from `seed`."""

    name: str
    causal: bool
    batch: int
    groups: int
    per_group: int
    length: int
    head_dim: int
    value_dim: int
    fields: dict[str, Any]
    rows: tuple[str, ...] | None
    """how each row is padded; None = no mask"""
    documents: bool
    gaps: bool
    """positions are given, and some are left out"""
    rotary: str | None
    dtype: torch.dtype
    seed: int
    drawn: torch.Generator = field(repr=False, compare=False, default_factory=torch.Generator)

    def __post_init__(self):
        self.drawn.manual_seed(self.seed)

    @property
    def heads(self):
        return self.groups * self.per_group

    def tensors(self):
        """q, k, v that want gradients."""
        shapes = (
            (self.heads, self.head_dim),
            (self.groups, self.head_dim),
            (self.groups, self.value_dim),
        )
        made = [off_zero(self.drawn, self.batch, h, self.length, d) for h, d in shapes]
        return [x.to(self.dtype).requires_grad_() for x in made]

    def integers(self, high, *shape):
        return torch.randint(high, shape, generator=self.drawn)

    def tokens(self):
        """key_mask, segments and positions, each None where the call does not give it."""
        mask = self._mask() if self.rows is not None else None
        segments = self._segments() if self.documents else None
        positions = None
        if self.gaps:
            positions = real_positions(self.length, key_mask=mask, segments=segments)
            steps = self.integers(3, *positions.shape)
            positions = positions + _rising(steps, segments)
            if mask is not None:
                # What a pad is given must not matter.
                positions = positions.expand(mask.shape).masked_fill(~mask, 12345)
        return mask, segments, positions

    def _mask(self):
        mask = torch.ones(self.batch, self.length, dtype=torch.bool)
        for row, kind in zip(mask, self.rows, strict=True):
            pads = int(self.integers(self.length, 1))
            if kind == "left":
                row[:pads] = False
            elif kind == "right":
                row[self.length - pads :] = False
            elif kind == "holes":
                row[:] = self.integers(3, self.length) > 0
            elif kind == "empty":
                row[:] = False
        return mask

    def _segments(self):
        """Documents in one run each, with ids in no order; about one in five tokens begins one."""
        begins = self.integers(5, self.batch, self.length) == 0
        ids = torch.randperm(self.length + 1, generator=self.drawn)
        return ids[begins.long().cumsum(1)]

    def build(self, **more):
        """The mechanism, in eval mode and in float64 where it has parameters."""
        fields = dict(self.fields)
        known = attention_fields(self.name)
        if "max_position_embeddings" in known:
            fields["max_position_embeddings"] = 3 * self.length
        if fields.get("conv_kernel_size"):
            fields["num_attention_heads"] = self.heads
        rotary = None
        torch.manual_seed(self.seed)
        if self.rotary is not None:
            rotary = {"rope": RotaryEmbedding, "lrpe": LRPE}[self.rotary](self.head_dim)
        implementation = fields.pop("attn_implementation", "sdpa")
        config = SimpleNamespace(_attn_implementation=implementation)
        return build_attention(self.name, fields, config=config, rotary=rotary, **more).double()


def _rising(steps, segments):
    """Sums of steps that begin anew in each document."""
    if segments is None:
        return steps.cumsum(1)
    same = segments[:, :, None] == segments[:, None, :]
    return (steps[:, None, :] * same.tril()).sum(2)


@st.composite
def fields_of(draw, name, causal):
    """Random fields of a mechanism, of values that it takes."""
    known = sorted(attention_fields(name) & FIELDS.keys())
    fields = {known: draw(FIELDS[known]) for known in known}
    if name == "cosformer" and not causal and fields["cos_reweighting"]:
        fields["cos_horizon"] = draw(st.sampled_from([None, "length"]))
    return fields


@st.composite
def cases(
    draw, names=None, causal=None, rotary=False, documents=True, dtypes=(torch.float64,), least=1
):
    """Random calls.

    Args:
        names: registry names to draw from; None = all.
        causal: None = drawn where the mechanism has both forms.
        rotary: draw rotations, too.
        documents: draw packed documents, too.
        dtypes: to draw from.
        least: tokens and numbers of a head. A norm over two numbers has next to no gradient, and
            in few bits rounding makes all of it; from 4 on gradients can be told from rounding.
    """
    name = draw(evenly(names or ATTENTION))
    causal = draw(st.booleans()) and name in CAUSAL if causal is None else causal
    fields = draw(fields_of(name, causal))
    batch = draw(st.integers(1, 3))
    rotations = [None, "rope", "lrpe"] if rotary else [None]
    turn = draw(evenly(rotations))
    head_dim = draw(st.integers((least + 1) // 2, 9)) * 2 if turn else draw(st.integers(least, 17))
    # The horizon "length" holds as many positions as tokens.
    gaps = fields.get("cos_horizon") != "length" and draw(st.booleans())
    return Case(
        name=name,
        causal=causal,
        batch=batch,
        groups=draw(st.integers(1, 3)),
        per_group=draw(st.integers(1, 3)),
        length=draw(lengths(least)),
        head_dim=head_dim,
        value_dim=draw(st.integers(least, 17)),
        fields=fields,
        rows=draw(st.none() | st.tuples(*[evenly(ROWS)] * batch)),
        documents=documents and draw(st.booleans()),
        gaps=gaps,
        rotary=turn,
        dtype=draw(evenly(dtypes)),
        seed=draw(st.integers(0, 2**16)),
    )
