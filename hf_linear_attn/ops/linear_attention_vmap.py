"""`torch.func.vmap` over linear attention: the mapped dimension joins the batch."""

from typing import Any

from torch import Tensor

from hf_linear_attn.ops.linear_attention_op import linear_attention_op

_TENSORS = 8
"""q, k, v, state, q_angles, k_angles, key_mask, segments come before the settings"""


_ANGLES = (4, 5)
"""which of them are angles"""


def _folded(x: Tensor | None, dim: int | None, size: int, *, angles: bool) -> Tensor | None:
    """(…, batch, …) with a mapped dimension, or alike for all of them -> (size · batch, …)."""
    if x is None:
        return None
    if dim is None:
        if angles and x.shape[0] == 1:
            # All rows share them still.
            return x
        x = x.unsqueeze(0).expand(size, *x.shape)
    else:
        x = x.movedim(dim, 0)
    return x.flatten(0, 1)


def _rows(tensors: list[Any], dims: list[Any]) -> int:
    """Rows of the batch without the mapped dimension."""
    q, dim = tensors[0], dims[0]
    return q.shape[0] if dim is None else q.movedim(dim, 0).shape[1]


def _map_rows(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    tensors, dims = list(arguments[:_TENSORS]), list(in_dims[:_TENSORS])
    size, batch = info.batch_size, _rows(tensors, dims)
    folded = [
        _folded(x, dim, size, angles=i in _ANGLES)
        for i, (x, dim) in enumerate(zip(tensors, dims, strict=True))
    ]
    for i in _ANGLES:
        x = folded[i]
        # Angles of one row, mapped: each mapped call has its own.
        if x is not None and x.shape[0] == size and dims[i] is not None:
            folded[i] = x.repeat_interleave(batch, 0)
    found = linear_attention_op(*folded, *arguments[_TENSORS:])
    *others, states = found
    parted: list[Any] = [
        (x.unflatten(0, (size, batch)), 0) if x.numel() else (x, None) for x in others
    ]
    if states.numel():
        parted.append((states.unflatten(1, (size, states.shape[1] // size)), 1))
    else:
        parted.append((states, None))
    values, out_dims = zip(*parted, strict=True)
    return values, out_dims


def register_vmap() -> None:
    """Make `torch.func.vmap` know the operator."""
    linear_attention_op.register_vmap(_map_rows)
