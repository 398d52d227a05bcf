"""What every attention mechanism promises.

It equals its O(n²) formula; a pad changes nothing, on either side, in any amount; rows of a batch
do not see each other; the future does not leak; a sequence cut anywhere, with the state carried
over, equals the whole; a recurrent state's size does not depend on the length.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from hf_linear_attn.attention.documents import check_documents
from hf_linear_attn.attention.positions import fill_positions
from hf_linear_attn.attention.value_checks import any_wrong
from hf_linear_attn.ops.operands import accumulation_dtype


@dataclass(frozen=True)
class Tokens:
    """What is known of the tokens beside their vectors; self-attention's defaults filled in."""

    causal: bool
    key_mask: Tensor | None
    """bool (batch, key_len), True = real token"""
    query_positions: Tensor | None
    """int (batch or 1, query_len); None = not asked for"""
    key_positions: Tensor | None
    """int (batch or 1, key_len)"""
    query_segments: Tensor | None
    """int (batch, query_len)"""
    key_segments: Tensor | None
    """int (batch, key_len)"""
    query_mask: Tensor | None = None
    """bool (batch, query_len), in self-attention the key_mask; None = unknown"""
    counted: bool = False
    """no positions were given: they count the real tokens of each document from 0"""


class Attention(nn.Module):
    """Base of the mechanisms; a mechanism implements `attend`.

    The constructor's keywords are fields of a model config (see `build_attention`), and:

    Args:
        rotary: rotates queries and keys by their positions, or None.
        check_inputs: look at the values of masks, positions and segments, not only at their shapes.
            A model that has checked them once for all its layers turns this off.
    """

    supports_causal: bool = True
    no_causal_reason: str = ""
    """why there is no causal form, in words that follow "has no causal form: "; for the error"""
    cache_kind: ClassVar[Literal["recurrent state", "block window", "full keys"]]
    has_parameters: bool = False
    supports_dropout: ClassVar[bool] = False
    """has weights over the keys that a dropout could act on"""
    uses_positions: bool = False

    def __init__(self, *, rotary: nn.Module | None = None, check_inputs: bool = True):
        super().__init__()
        self.rotary = rotary
        self.check_inputs = check_inputs

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        causal: bool,
        key_mask: Tensor | None = None,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        query_segments: Tensor | None = None,
        key_segments: Tensor | None = None,
        state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; for self-attention give positions and segments once.

        Args:
            query: float (batch, heads, query_len, head_dim).
            key: float (batch, kv_heads, key_len, head_dim), kv_heads divides heads.
            value: float (batch, kv_heads, key_len, value_dim).
            causal: token i sees tokens j ≤ i; the last query is aligned with the last key.
            key_mask: bool (batch, key_len), True = real token; None = no padding.
            query_positions, key_positions: int (batch or 1, len); None = counted over the real
                tokens of each document, from 0. Where the lengths are equal, what is given for
                one side holds for the other: cross-attention then has to give both.
            query_segments, key_segments: int (batch, len), the document of each token; None = one
                document a row.
            state: what an earlier call returned for the tokens before these, or None.

        Returns:
            The output (batch, heads, query_len, value_dim) in value's dtype, and the state after
            the last token, or None for mechanisms and calls that have none.

        Raises:
            ValueError: what was given cannot be honoured.
        """
        tokens = self._describe(
            query, key, value, causal, key_mask, (query_positions, key_positions),
            (query_segments, key_segments), carried=state is not None,
        )  # fmt: skip
        return self.attend(query, key, value, tokens, state)

    def weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        causal: bool,
        key_mask: Tensor | None = None,
        query_positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        query_segments: Tensor | None = None,
        key_segments: Tensor | None = None,
    ) -> Tensor:
        """The explicit matrix W (batch, heads, query_len, key_len) that the values are summed with.

        Quadratic in time and memory: for looking at, never on the way of a forward pass. It is what
        a mechanism does to the values before anything that is no sum over tokens (a norm behind
        it, a convolution beside it), without dropout. Arguments and errors as in `forward`.
        """
        tokens = self._describe(
            query, key, key, causal, key_mask, (query_positions, key_positions),
            (query_segments, key_segments), carried=False,
        )  # fmt: skip
        return self.pair_weights(query, key, tokens).to(query.dtype)

    def pair_weights(self, query: Tensor, key: Tensor, tokens: Tokens) -> Tensor:
        """See `weights`; what `attend` makes of unit vectors, where it is linear in the values."""
        return self.attend(query, key, self._units(query, key), tokens, None)[0]

    def _units(self, query: Tensor, key: Tensor) -> Tensor:
        """Values that are the unit vectors: what is made of them are the weights."""
        dtype = accumulation_dtype(query, key)
        units = torch.eye(key.shape[2], dtype=dtype, device=key.device)
        return units.expand(*key.shape[:2], -1, -1)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The mechanism itself; arguments as in `forward`, defaults filled in and checked."""
        raise NotImplementedError

    def check_positions(
        self, positions: Tensor, mask: Tensor | None, segments: Tensor | None
    ) -> None:
        """Refuse positions of real tokens that the mechanism cannot take.

        Args:
            positions: int (batch or 1, seq).
            mask: bool (batch, seq), True = real token, or None.
            segments: int (batch, seq) or None.

        Raises:
            ValueError: a position is out of range.
        """

    def _describe(
        self, query: Tensor, key: Tensor, value: Tensor, causal: bool, key_mask: Tensor | None,
        positions: tuple[Tensor | None, Tensor | None],
        segments: tuple[Tensor | None, Tensor | None], *, carried: bool,
    ) -> Tokens:  # fmt: skip
        """Check what was given and fill in what follows from it."""
        (query_positions, key_positions), (query_segments, key_segments) = positions, segments
        self._check_shapes(query, key, value, causal)
        alike = query.shape[2] == key.shape[2]
        # With positions of their own the queries are other tokens: the keys' pads say nothing.
        crossed = query_positions is not key_positions and None not in (
            query_positions, key_positions,
        )  # fmt: skip
        query_mask = key_mask if alike and not crossed else None
        if key_segments is None and alike:
            key_segments = query_segments
        if query_segments is None and alike:
            query_segments = key_segments
        counted = query_positions is None and key_positions is None
        if self.uses_positions or self.rotary is not None:
            if query_positions is None and carried:
                raise ValueError(
                    f"{type(self).__name__} got a state but no query_positions: with a state the "
                    "positions continue where the earlier tokens ended, so they must be given."
                )
            query_positions, key_positions = fill_positions(
                query, key, causal, key_mask, query_positions, key_positions,
                query_segments, key_segments,
            )  # fmt: skip
        tokens = Tokens(
            causal, key_mask, query_positions, key_positions, query_segments, key_segments,
            query_mask, counted,
        )  # fmt: skip
        self._check_tokens(tokens, query, key)
        return tokens

    def _check_same_documents(self, tokens: Tokens) -> None:
        """Refuse packed documents in anything but self-attention."""
        queries, keys = tokens.query_segments, tokens.key_segments
        if keys is None or queries is keys:
            return
        if queries is None or queries.shape != keys.shape:
            raise ValueError(
                f"{type(self).__name__} takes packed documents in self-attention only; got "
                "queries and keys of different lengths."
            )
        message = "query_segments and key_segments differ; give one of them."
        if self.check_inputs and any_wrong(queries != keys, message):
            raise ValueError(message)

    def _check_self_attention(self, query: Tensor, key: Tensor, tokens: Tokens) -> None:
        """Refuse queries that are other tokens than the keys."""
        name = type(self).__name__
        if query.shape[2] != key.shape[2]:
            raise ValueError(
                f"{name} is self-attention: queries and keys are the same tokens; got "
                f"{query.shape[2]} queries and {key.shape[2]} keys."
            )
        queries, keys = tokens.query_positions, tokens.key_positions
        message = f"{name} is self-attention: got query_positions that are not key_positions."
        if queries is not None and keys is not None and queries is not keys:  # noqa: SIM102
            if self.check_inputs and any_wrong(queries != keys, message):
                raise ValueError(message)
        if tokens.key_mask is not None and tokens.query_mask is None:
            raise ValueError(
                f"{name} is self-attention: with a key_mask give positions once, not for queries "
                "and keys; given twice they say that the queries are other tokens."
            )
        self._check_same_documents(tokens)

    def no_causal_form(self) -> str:
        """The sentence with which a causal use is refused."""
        reason = f": {self.no_causal_reason}" if self.no_causal_reason else ""
        return f"{type(self).__name__} has no causal form{reason}. Use it in an encoder."

    def _check_shapes(self, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> None:
        name = type(self).__name__
        if not query.ndim == key.ndim == value.ndim == 4:
            raise ValueError(
                f"{name} takes query (batch, heads, query_len, head_dim) and key, value (batch, "
                f"kv_heads, key_len, ·); got {query.ndim}, {key.ndim} and {value.ndim} dimensions."
            )
        heads, groups = query.shape[1], key.shape[1]
        if 0 in (groups, query.shape[2], key.shape[2]):
            raise ValueError(
                f"{name} needs a head, a query and a key at least; got query "
                f"{tuple(query.shape)}, key {tuple(key.shape)}."
            )
        if heads % groups or key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0]:
            raise ValueError(
                f"{name}: key and value must share (batch, kv_heads, key_len), kv_heads divide "
                f"heads, batches agree; got query {tuple(query.shape)}, key {tuple(key.shape)}, "
                f"value {tuple(value.shape)}."
            )
        if query.shape[3] != key.shape[3]:
            raise ValueError(
                f"{name}: query and key must have one head_dim; got {query.shape[3]} and "
                f"{key.shape[3]}."
            )
        if causal and not self.supports_causal:
            raise ValueError(self.no_causal_form())
        longer = self.cache_kind == "full keys" and key.shape[2] > query.shape[2]
        if causal and query.shape[2] != key.shape[2] and not longer:
            raise ValueError(
                f"{name}: causal attention needs a key for each query; got {query.shape[2]} "
                f"queries and {key.shape[2]} keys."
            )

    def _check_tokens(self, tokens: Tokens, query: Tensor, key: Tensor) -> None:
        batch, n, m = query.shape[0], query.shape[2], key.shape[2]
        mask = tokens.key_mask
        if mask is not None and (mask.shape != (batch, m) or mask.dtype != torch.bool):
            raise ValueError(
                f"key_mask must be bool of shape {(batch, m)}, True = real token; got "
                f"{mask.dtype} of shape {tuple(mask.shape)}."
            )
        sides = (
            ("query", n, tokens.query_mask, tokens.query_positions, tokens.query_segments),
            ("key", m, mask, tokens.key_positions, tokens.key_segments),
        )
        for side, length, real, positions, segments in sides:
            if positions is not None and positions.shape not in ((batch, length), (1, length)):
                raise ValueError(
                    f"{side}_positions must have shape {(batch, length)} or {(1, length)}; got "
                    f"{tuple(positions.shape)}."
                )
            if segments is not None and segments.shape != (batch, length):
                raise ValueError(
                    f"{side}_segments must have shape {(batch, length)}; got "
                    f"{tuple(segments.shape)}."
                )
            if self.check_inputs:
                if segments is not None:
                    check_documents(segments, real)
                if positions is not None:
                    self.check_positions(positions, real, segments)
        if (tokens.query_segments is None) != (tokens.key_segments is None):
            raise ValueError(
                "query_segments and key_segments go together when queries and keys differ in "
                "length; got only one of them."
            )
