"""What linear attention accepts."""

import torch
from torch import Tensor

from hf_linear_attn.linear_attention_types import Inputs, Settings
from hf_linear_attn.ops.feature_maps import get_feature_map


def check_inputs(x: Inputs, settings: Settings) -> None:
    """Refuse what cannot be computed as asked.

    Args:
        x, settings: as given to `linear_attention`.

    Raises:
        ValueError: what was got, and what is accepted.
    """
    _check_settings(settings)
    _check_sizes(x, settings.causal)
    _check_optional(x, settings)


def _check_settings(settings: Settings) -> None:
    get_feature_map(settings.feature_map)
    if not isinstance(settings.chunk_size, int) or settings.chunk_size < 1:
        raise ValueError(f"chunk_size is {settings.chunk_size!r}; it must be at least 1, an int.")
    if not 0 < settings.eps < float("inf"):
        raise ValueError(f"eps is {settings.eps!r}; it must be above 0 and finite.")


def _check_sizes(x: Inputs, causal: bool) -> None:
    q, k, v = x.q, x.k, x.v
    for name, t in (("q", q), ("k", k), ("v", v)):
        if not isinstance(t, Tensor) or t.ndim != 4 or not t.is_floating_point():
            raise ValueError(
                f"{name} must be a float tensor (batch, heads, seq, head_dim); got {_found(t)}."
            )
    (B, H, N, D), (Bk, G, M, Dk) = q.shape, k.shape
    if (Bk, Dk) != (B, D) or k.shape[:3] != v.shape[:3] or G == 0 or H % G:
        raise ValueError(
            "q (batch, heads, N, D), k (batch, kv_heads, M, D) and v (batch, kv_heads, M, Dv) must "
            f"agree and kv_heads divide heads; got {_shapes(q, k, v)}."
        )
    if 0 in (H, N, M, D, v.shape[3]):
        raise ValueError(
            f"heads, queries, keys and head sizes must be at least 1; got {_shapes(q, k, v)}."
        )
    if (causal or x.segments is not None) and N != M:
        raise ValueError(
            f"causal attention and segments need as many queries as keys; got {N} and {M}."
        )


def _check_optional(x: Inputs, settings: Settings) -> None:
    (B, _, N, D), M = x.q.shape, x.k.shape[2]
    _check_layout("q_angles", x.q_angles, ((B, N), (1, N)), "float")
    _check_layout("k_angles", x.k_angles, ((B, M), (1, M)), "float")
    _check_layout("key_mask", x.key_mask, ((B, M),), "bool")
    _check_layout("segments", x.segments, ((B, N),), "int")
    if (x.q_angles is None) != (x.k_angles is None):
        raise ValueError("q_angles and k_angles go together; got only one of them.")
    for name, angles in (("q_angles", x.q_angles), ("k_angles", x.k_angles)):
        if angles is not None and angles.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} wants gradients, and linear attention has none for angles; detach it, or "
                "put learned angles into q and k."
            )
    if x.state is not None:
        if not settings.causal or x.segments is not None:
            raise ValueError("a state can be carried into causal attention without segments only.")
        features = D if x.q_angles is None else 2 * D
        columns = x.v.shape[3] + settings.normalize
        _check_layout("state", x.state, ((B, x.k.shape[1], features, columns),), "float")


_KINDS = {
    "float": lambda dtype: dtype.is_floating_point,
    "bool": lambda dtype: dtype == torch.bool,
    "int": lambda dtype: not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool),
}


def _check_layout(name: str, x: Tensor | None, shapes: tuple[tuple[int, ...], ...], kind: str):
    if x is None:
        return
    if not isinstance(x, Tensor) or tuple(x.shape) not in shapes or not _KINDS[kind](x.dtype):
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"{name} must be {kind} and have shape {wanted}; got {_found(x)}.")


def _found(x: object) -> str:
    return f"{tuple(x.shape)}, {x.dtype}" if isinstance(x, Tensor) else repr(x)


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(tuple(x.shape)) for x in tensors)
