"""The way from the ops to the Triton kernels.

They are imported when a call wants them, and by name: importing the package must not need Triton,
and code that travels with models leaves them behind.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C import _TorchDispatchModeKey

from hf_linear_attn.namespace import IS_PACKAGE, ROOT


def kernel_module(name: str) -> ModuleType:
    """A module of `hf_linear_attn.kernels`."""
    return import_module(f"{ROOT}.kernels.{name}")


def why_no_kernel(
    tensors: Iterable[Tensor | None], why_not: Callable[[ModuleType], str | None]
) -> str | None:
    """Why no kernel can run on these tensors, in words, or None.

    Args:
        tensors: all that the kernel would read.
        why_not: asks `kernels.support`, which it is handed, about the call.
    """
    there = [x for x in tensors if x is not None]
    reason = _why_not_readable(there) or why_not(kernel_module("support"))
    if reason is None and there[0].device.type != "cpu":
        return kernel_module("starting").why_triton_does_not_start()
    return reason


def _why_not_readable(tensors: list[Tensor]) -> str | None:
    if not IS_PACKAGE:
        return (
            "kernels are part of the installed package and not of code that came with a model "
            "(pip install 'hf-linear-attn[triton]')"
        )
    if any(_is_opaque(x) for x in tensors) or _is_recorded():
        return "a kernel reads memory, which fake tensors, tensors of tensors and tracers lack"
    devices = {str(x.device) for x in tensors}
    if len(devices) > 1:
        # PyTorch refuses them itself; a kernel would read what is not there.
        return f"the tensors are on {' and '.join(sorted(devices))}"
    return None


def _is_opaque(x: Tensor) -> bool:
    """Is this a tensor whose operations somebody else carries out?"""
    dispatch: Any = type(x)
    return dispatch.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


def _is_recorded() -> bool:
    """Are operations computed on shapes alone, or recorded into a graph?"""
    modes = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.PROXY)
    return any(torch._C._get_dispatch_mode(mode) is not None for mode in modes)
