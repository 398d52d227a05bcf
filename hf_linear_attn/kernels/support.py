"""Is there a kernel for a call?"""

import torch
from torch import Tensor

from hf_linear_attn.kernels.configurations import (
    DTYPES,
    HEAD_SIZES,
    LINEAR_ATTENTION,
    MATRIX_SIZES,
    PSEUDO_INVERSE,
    TARGETS,
    configuration,
    head_size,
    matrix_size,
    target_of,
)
from hf_linear_attn.linear_attention_types import Inputs

OLDEST = (3, 9)
"""version of Triton"""


def why_not(x: Inputs) -> str | None:
    """Why no kernel serves a call of linear attention, in words; None where one does.

    Args:
        x: as given to `linear_attention`, checked.
    """
    return (
        _why_not_here(x.q)
        or _why_not_dtype(x.q, x.k, x.v)
        or _why_not_size(x.q.shape[-1], x.v.shape[-1], x.q.dtype)
        or _why_not_configured(x)
    )


def why_no_inverse(A: Tensor) -> str | None:
    """Why no kernel serves `pseudo_inverse`, in words; None where one does.

    Args:
        A: (…, m, m) matrices.
    """
    reason = _why_not_here(A)
    if reason is not None:
        return reason
    if A.dtype != torch.float32:
        return f"the pseudo-inverse is computed in float32; got {A.dtype}"
    size, target = matrix_size(A.shape[-1]), target_of(A.device)
    assert target is not None
    if size is None:
        return f"matrices of up to {MATRIX_SIZES[-1]} rows are inverted; got {A.shape[-1]}"
    for kernel in PSEUDO_INVERSE:
        if configuration(kernel, A.dtype, size, target) is None:
            return f"no configuration of {kernel} fits {target}, {size} rows"
    return None


def _why_not_here(q: Tensor) -> str | None:
    try:
        import triton
    except ImportError:
        return "Triton is not installed (pip install 'hf-linear-attn[triton]')"
    except Exception as error:
        return f"Triton cannot be imported here ({type(error).__name__}: {error})"
    if not _is_new_enough(triton.__version__):
        oldest = ".".join(map(str, OLDEST))
        return f"Triton {triton.__version__} is older than {oldest}, for which kernels are made"
    if target_of(q.device) is None:
        hint = ""
        if q.device.type == "cpu":
            hint = " (where Python starts with TRITON_INTERPRET=1, Triton's interpreter runs them)"
        names = ", ".join(TARGETS)
        return f"there are kernels for {names}, not for the device {str(q.device)!r}{hint}"
    return None


def _is_new_enough(version: str) -> bool:
    """What the launch table was proven on, or later: an earlier compiler spills registers."""
    return tuple(int(part) for part in version.split(".")[:2]) >= OLDEST


def _why_not_dtype(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    if q.dtype == k.dtype == v.dtype and q.dtype in DTYPES:
        return None
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
    return f"q, k and v must be of one dtype of {names}; got {q.dtype}, {k.dtype}, {v.dtype}"


def _why_not_size(D: int, Dv: int, dtype: torch.dtype) -> str | None:
    if head_size(D, Dv) is None:
        return f"head sizes go up to {HEAD_SIZES[-1]}; got {D} (values: {Dv})"
    if dtype.itemsize == 2 and (D % 2 or Dv % 2):
        return f"head sizes in 16 bits must be even; got {D} (values: {Dv})"
    return None


def _why_not_configured(x: Inputs) -> str | None:
    size, target = head_size(x.q.shape[-1], x.v.shape[-1]), target_of(x.q.device)
    assert size is not None
    assert target is not None
    for kernel in LINEAR_ATTENTION:
        if configuration(kernel, x.q.dtype, size, target) is None:
            return f"no configuration of {kernel} fits {target} in {x.q.dtype}, head size {size}"
    return None
