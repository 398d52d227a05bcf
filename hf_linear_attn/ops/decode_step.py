"""One new token of causal linear attention, in as few operations as it takes.

A step costs less than what surrounds it: an autograd function, chunks and an operator are longer
than the sums themselves.
"""

import torch
from torch import Tensor

from hf_linear_attn.linear_attention_types import Inputs, Settings
from hf_linear_attn.ops.feature_maps import get_feature_map
from hf_linear_attn.ops.normaliser import divide
from hf_linear_attn.ops.operands import accumulation_dtype


def is_decode_step(x: Inputs, settings: Settings) -> bool:
    """Is this one token of a causal sequence, and nobody asks for gradients?"""
    if not settings.causal or x.q.shape[2] != 1 or x.segments is not None:
        return False
    tensors = (x.q, x.k, x.v, x.state)
    return not (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors))


def decode_step(x: Inputs, settings: Settings) -> tuple[Tensor, Tensor]:
    """The output (B, H, 1, Dv) in v's dtype, and the state (B, G, F, E) with the token in it.

    Args:
        x, settings: as given to `linear_attention`, checked; see `is_decode_step`. The given state
            is not changed.
    """
    if torch.is_autocast_enabled(x.q.device.type):
        with torch.autocast(x.q.device.type, enabled=False):
            return decode_step(x, settings)
    dtype = accumulation_dtype(x.q, x.k, x.v)
    phi = get_feature_map(settings.feature_map).forward
    (B, H, _, D), G = x.q.shape, x.k.shape[1]
    q = phi(x.q.to(dtype).reshape(B, G, H // G, D))
    k, v = phi(x.k.to(dtype)), x.v.to(dtype)
    if x.key_mask is not None:
        pad = ~x.key_mask[:, None, :, None]
        k, v = k.masked_fill(pad, 0), v.masked_fill(pad, 0)
    if x.q_angles is not None and x.k_angles is not None:
        q, k = _turned(q, x.q_angles), _turned(k, x.k_angles)
    if settings.normalize:
        v = torch.nn.functional.pad(v, (0, 1), value=1.0)
    k = k.mT
    state = k * v if x.state is None else torch.addcmul(x.state.to(dtype), k, v)
    sums = q @ state
    if settings.normalize:
        sums = divide(sums[..., :-1], sums[..., -1:], settings.eps)
    return sums.view(B, H, 1, -1).to(x.v.dtype), state


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    """[x cos a, x sin a] of rows (B, ·, ·, D) at one angle a row, (B or 1, 1)."""
    angles = angles.to(x.dtype)[:, :, None, None]
    return torch.cat((x * angles.cos(), x * angles.sin()), dim=-1)
