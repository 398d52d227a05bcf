"""Which implementation runs an op: PyTorch everywhere, Triton kernels where they exist.

An explicit choice (argument, `use_backend`, environment variable) is honoured or refused; only the
automatic choice may fall back.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from hf_linear_attn.namespace import NAMESPACE

BACKENDS = ("torch", "triton")
ENVIRONMENT_VARIABLE = "HF_LINEAR_ATTN_BACKEND"

logger = logging.getLogger(__name__)

_chosen: ContextVar[str | None] = ContextVar("hf_linear_attn_backend", default=None)
_logged: set[tuple[str, str]] = set()


def _check_name(name: str, where: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"{where} is {name!r}; accepted: {', '.join(map(repr, BACKENDS))}.")
    return name


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run everything inside the `with` block on one backend.

    A compiled or exported model follows the block it is called in, wherever it was compiled.
    The block stands around the call: inside a compiled function it breaks the graph.

    Args:
        name: "torch" or "triton".

    Raises:
        ValueError: the name is unknown, or (at the first op) the backend cannot run here.
    """
    token = _chosen.set(_check_name(name, "backend"))
    try:
        yield
    finally:
        _chosen.reset(token)


def resolve_backend(requested: str | None, device_type: str) -> str:
    """The backend an op is to use: argument, `use_backend`, the environment, then "torch".

    Args:
        requested: the caller's explicit choice or None.
        device_type: `tensor.device.type` of the inputs; named in the log line.

    Raises:
        ValueError: an unknown name, or a backend that cannot run here.
    """
    environment = os.environ.get(ENVIRONMENT_VARIABLE)
    if requested is not None:
        name = _check_name(requested, "backend")
    elif (chosen := _chosen.get()) is not None:
        name = chosen
    elif environment:
        name = _check_name(environment, ENVIRONMENT_VARIABLE)
    else:
        name = "torch"
    if name == "triton":
        raise ValueError(
            "backend='triton' was asked for, but this release has no Triton kernels for this op. "
            "Use backend='torch' (it runs on CPU and GPU), or leave the choice open."
        )
    if (name, device_type) not in _logged:
        _logged.add((name, device_type))
        logger.info("linear attention runs on backend %r, device %r", name, device_type)
    return name


@torch.library.custom_op(f"{NAMESPACE}::backend_runs", mutates_args=())
def _backend_runs(x: Tensor) -> Tensor:
    """A true bool scalar, or the error of `resolve_backend`, when a graph runs."""
    resolve_backend(None, x.device.type)
    return torch.ones((), dtype=torch.bool, device=x.device)


@_backend_runs.register_fake
def _(x):
    return x.new_empty((), dtype=torch.bool)


def require_backend(x: Tensor) -> None:
    """Refuse a chosen backend that has no kernel for an op written in plain PyTorch.

    In a graph the question is asked whenever it runs, so that it follows `use_backend` like an
    eager call.

    Args:
        x: any input of the op.

    Raises:
        ValueError: see `resolve_backend`.
    """
    if torch.compiler.is_compiling():
        runs = _backend_runs(x.detach())
        torch._assert_async(runs, "backend")  # pyright: ignore[reportPrivateImportUsage]
    else:
        resolve_backend(None, x.device.type)
