"""Tensors whose elements lie more than 2³¹ apart, without the memory between them."""

import pytest
import torch

from tests.kernels.guards import INTERPRETED


def buffer(folder, name, elements):
    """bfloat16 of a given number; on the CPU a file without blocks: only what is written counts."""
    if INTERPRETED:
        path = str(folder / name)
        return torch.from_file(path, shared=True, size=elements, dtype=torch.bfloat16)
    free, _ = torch.cuda.mem_get_info()
    if free < 2 * elements + 2**30:
        pytest.skip(f"needs {elements / 2**29:.0f} GiB of GPU memory; {free / 2**30:.0f} are free")
    return torch.empty(elements, dtype=torch.bfloat16)


def spread(x, strides, folder, name):
    """A copy of x (bfloat16) with the given strides."""
    size = 1 + sum((n - 1) * step for n, step in zip(x.shape, strides, strict=True))
    view = buffer(folder, name, size).as_strided(x.shape, strides)
    view.copy_(x)
    return view


def prepare(patch):
    """The interpreter would copy whole storages from the host to the host."""
    if not INTERPRETED:
        return
    from triton.runtime.interpreter import GridExecutor

    patch.setattr(GridExecutor, "_restore_args_dev", lambda *_: None)
