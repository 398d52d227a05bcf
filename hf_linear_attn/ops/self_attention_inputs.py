"""Shapes of the inputs of ops in which queries and keys are the same tokens."""

import torch
from torch import Tensor


def check_self_attention(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, segments: Tensor | None
) -> None:
    """Refuse what does not fit together.

    Args:
        q: float (B, H, N, D).
        k: float (B, G, N, D); G divides H.
        v: float (B, G, N, Dv).
        key_mask: bool (B, N) or None.
        segments: int (B, N) or None.

    Raises:
        ValueError: another shape or dtype.
    """
    if not all(x.ndim == 4 and x.is_floating_point() for x in (q, k, v)):
        raise ValueError(
            f"q, k, v must be float (batch, heads, seq, head_dim); got {_shapes(q, k, v)}."
        )
    (B, H, N, _), G = q.shape, k.shape[1]
    alike = (k.shape[0], *k.shape[2:]) == (B, *q.shape[2:]) and k.shape[:3] == v.shape[:3]
    if not alike or 0 in (N, G) or H % G:
        raise ValueError(
            "q (batch, heads, N, D), k (batch, kv_heads, N, D) and v (batch, kv_heads, N, Dv) must "
            "agree, N be at least 1 and kv_heads divide heads: queries and keys are the same "
            f"tokens; got {_shapes(q, k, v)}."
        )
    if key_mask is not None and (key_mask.shape != (B, N) or key_mask.dtype != torch.bool):
        raise ValueError(
            f"key_mask must be bool of shape {(B, N)}; got {key_mask.dtype} of shape "
            f"{tuple(key_mask.shape)}."
        )
    if segments is not None and (segments.shape != (B, N) or segments.is_floating_point()):
        raise ValueError(
            f"segments must have shape {(B, N)} and hold integers; got {segments.dtype} of shape "
            f"{tuple(segments.shape)}."
        )


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in tensors)
