"""Causal linear attention of one token after another, at the cost of its arithmetic.

A token of a few heads is so little work that the allocations around it take as long. Here the state
is updated in place, and what lies between is written into buffers that are made once.
"""

import torch
from torch import Tensor

from hf_linear_attn.backend import require_backend
from hf_linear_attn.ops.feature_maps import get_feature_map
from hf_linear_attn.ops.normaliser import divide

# Their features are never negative: without angles D = 0 only where N = 0, too.
_NEVER_NEGATIVE = ("relu", "elu_plus_one")


class RecurrentDecoder:
    """Reads a token at every call, and says what it attends to.

    The same function as `linear_attention` with causal=True, one token and a state, without
    gradients and without masks.

    Args:
        state: (B, G, F, Dv + normalize) fp32 or fp64, as `linear_attention` returns it (sums of
            such features); zeros before the first token. It is copied.
        heads: H, query heads; G divides H.
        feature_map, normalize, eps: as in `linear_attention`.
        turned: the features have angles; F is 2D then.

    Raises:
        ValueError: sizes that do not fit together, a state of another dtype, an unknown map, or
            a chosen backend other than PyTorch.
    """

    def __init__(
        self,
        state: Tensor,
        heads: int,
        *,
        feature_map: str = "identity",
        normalize: bool = True,
        eps: float = 1e-6,
        turned: bool = False,
    ):
        require_backend(state, "a RecurrentDecoder is PyTorch's; linear_attention has a kernel")
        self._overwrite = get_feature_map(feature_map).overwrite
        if state.ndim != 4 or state.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                "state must be (batch, kv_heads, features, value_dim + normalize) in fp32 or fp64; "
                f"got {tuple(state.shape)}, {state.dtype}."
            )
        B, G, F, E = state.shape
        if heads < 1 or heads % max(G, 1) or (turned and F % 2):
            raise ValueError(
                f"kv_heads must divide heads, and features be even with angles; got {G} kv_heads, "
                f"{heads} heads, {F} features."
            )
        D, Dv = F // (1 + turned), E - normalize
        self._q_shape, self._k_shape = (B, heads, 1, D), (B, G, 1, D)
        self._v_shape = (B, G, 1, Dv)
        self._grouped = None if heads == G else (B, G, heads // G, D)
        self._eps, self._normalize, self._turned = eps, normalize, turned
        self._plain_division = feature_map in _NEVER_NEGATIVE and not turned
        with torch.inference_mode(False):
            # In and out of inference mode alike.
            self.state = state.detach().clone(memory_format=torch.contiguous_format)
            """(B, G, F, Dv + normalize), changed by every call"""
            self._make_buffers(B, G, heads // G, D, Dv)

    def _make_buffers(self, B: int, G: int, r: int, D: int, Dv: int) -> None:
        """All that lies between a token and its output, and the views of it that a call needs."""
        state = self.state
        F, E = state.shape[2:]
        # Of a token: r rows of queries, one of the key.
        self._rows = state.new_empty(B, G, r + 1, D)
        wide = self._rows
        if self._turned:
            self._angles = state.new_empty(B, 1)
            self._turn = state.new_empty(B, 1, 1, 2, 1)
            self._cos, self._sin = (x.view(B, 1) for x in self._turn.unbind(3))
            self._turned_rows = state.new_empty(B, G, r + 1, 2, D)
            wide = self._turned_rows.flatten(3)
        self._queries = wide[:, :, :r].view(B * G, r, F)
        self._key = wide[:, :, r:].view(B * G, 1, F).mT
        # The column of ones is written here once.
        self._values = state.new_ones(B * G, 1, E)
        self._value = self._values[..., :Dv].view(B, G, 1, Dv)
        self._flat_state = state.view(B * G, F, E)
        self._sums = state.new_empty(B * G, r, E)
        sums = self._sums.view(B, G * r, 1, E)
        self._top, self._low = sums[..., :Dv], sums[..., Dv:]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, angles: Tensor | None = None) -> Tensor:
        """Take a token into the state, and attend from it.

        Args:
            q: (B, H, 1, D) float.
            k: (B, G, 1, D) float.
            v: (B, G, 1, Dv) float.
            angles: float (B or 1, 1), radians, of the token's query and key.

        Returns:
            (B, H, 1, Dv) in v's dtype.

        Raises:
            ValueError: other shapes, angles too many or missing, or inputs that want gradients.
        """
        if torch.is_autocast_enabled(q.device.type):
            with torch.autocast(q.device.type, enabled=False):
                return self(q, k, v, angles)
        if q.shape != self._q_shape or k.shape != self._k_shape or v.shape != self._v_shape:
            raise ValueError(self._wrong_shapes(q, k, v))
        self._check(q, k, v, angles)
        if self._grouped is not None:
            q = q.reshape(self._grouped)
        torch.cat((q, k), 2, out=self._rows)
        self._overwrite(self._rows)
        if angles is not None:
            self._angles.copy_(angles)
            torch.cos(self._angles, out=self._cos)
            torch.sin(self._angles, out=self._sin)
            torch.mul(self._rows.unsqueeze(3), self._turn, out=self._turned_rows)
        self._value.copy_(v)
        self._flat_state.addcmul_(self._key, self._values)
        torch.bmm(self._queries, self._flat_state, out=self._sums)
        return self._output().to(v.dtype)

    def _output(self) -> Tensor:
        """The sums divided, in memory of its own."""
        if not self._normalize:
            return self._top.clone(memory_format=torch.contiguous_format)
        if self._plain_division:
            return self._top / self._low.clamp_min_(self._eps)
        return divide(self._top, self._low, self._eps)

    def _check(self, q: Tensor, k: Tensor, v: Tensor, angles: Tensor | None) -> None:
        if (angles is not None) != self._turned:
            found = "without angles" if angles is None else "with angles"
            raise ValueError(f"turned={self._turned}, but a token came {found}.")
        if torch.float64 in (q.dtype, k.dtype, v.dtype) and self.state.dtype != torch.float64:
            raise ValueError("a token in fp64 needs a state in fp64; got one in fp32.")
        if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
            raise ValueError(
                "a RecurrentDecoder has no gradients; call it under torch.no_grad(), or use "
                "linear_attention."
            )

    def _wrong_shapes(self, *tensors: Tensor) -> str:
        wanted = ", ".join(map(str, (self._q_shape, self._k_shape, self._v_shape)))
        found = ", ".join(str(tuple(x.shape)) for x in tensors)
        return f"q, k and v of one token must be {wanted}; got {found}."
