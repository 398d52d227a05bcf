"""Which implementation runs an op: PyTorch everywhere, Triton kernels where they exist.

An explicit choice (argument, `use_backend`, environment variable) is honoured or refused; only the
automatic choice may fall back.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from hf_linear_attn.namespace import NAMESPACE

BACKENDS = ("torch", "triton")
AUTOMATIC = "automatic"
ENVIRONMENT_VARIABLE = "HF_LINEAR_ATTN_BACKEND"

logger = logging.getLogger(__name__)

_chosen: ContextVar[str | None] = ContextVar("hf_linear_attn_backend", default=None)
_logged: set[tuple[str, str, str | None]] = set()


def _check_name(name: str, where: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"{where} is {name!r}; accepted: {', '.join(map(repr, BACKENDS))}.")
    return name


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run everything inside the `with` block on one backend.

    A compiled or exported model follows the block it is called in, wherever it was compiled.
    The block stands around the call: inside a compiled function it breaks the graph. A backward
    pass runs on the backend of its forward pass; where that is computed again (in graphs, under
    gradient checkpointing) the block has to hold the backward pass, too. Threads that are started
    inside have a context of their own: start them with `contextvars.copy_context().run`, or set
    HF_LINEAR_ATTN_BACKEND for the whole process.

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


def _block() -> str | None:
    """What `use_backend` says here."""
    chosen = _chosen.get()
    if chosen is None and torch._C._is_key_in_tls("context"):
        # A GPU's backward pass has a thread of its own, to which PyTorch hands the context of
        # whoever called `backward`.
        return torch._C._get_obj_in_tls("context").get(_chosen)
    return chosen


def resolve_backend(requested: str | None, device_type: str) -> str:
    """What is asked for: by argument, `use_backend` or the environment; else it is open.

    Args:
        requested: the caller's explicit choice or None.
        device_type: `tensor.device.type` of the inputs.

    Returns:
        "torch", "triton", or "automatic": Triton where there is a kernel, else PyTorch. Off GPUs an
        open choice is "torch": Triton's interpreter runs only where it is asked for.

    Raises:
        ValueError: an unknown name.
    """
    if requested is not None:
        return _check_name(requested, "backend")
    if (chosen := _block()) is not None:
        return chosen
    if environment := os.environ.get(ENVIRONMENT_VARIABLE):
        return _check_name(environment, ENVIRONMENT_VARIABLE)
    return AUTOMATIC if device_type == "cuda" else "torch"


def choose_backend(
    requested: str | None, device_type: str, why_not: Callable[[], str | None]
) -> str:
    """The backend that runs an op, "torch" or "triton"; logged once at level INFO.

    Args:
        requested, device_type: as in `resolve_backend`.
        why_not: why no kernel serves the call, or None; asked where it could be one.

    Raises:
        ValueError: an unknown name, or a backend that cannot run the call.
    """
    choice = resolve_backend(requested, device_type)
    reason = None if choice == "torch" else why_not()
    if choice == "triton" and reason is not None:
        raise ValueError(
            f"backend='triton' was asked for, but {reason}. Use backend='torch' (it runs on CPU "
            "and GPU), or leave the choice open."
        )
    name = "torch" if choice == "torch" or reason is not None else "triton"
    if (name, device_type, reason) not in _logged:
        _logged.add((name, device_type, reason))
        because = "" if reason is None else f": {reason}"
        logger.info("linear attention runs on backend %r, device %r%s", name, device_type, because)
    return name


@torch.library.custom_op(f"{NAMESPACE}::backend_runs", mutates_args=())
def _backend_runs(x: Tensor, reason: str) -> Tensor:
    """A true bool scalar, or the error of `choose_backend`, when a graph runs."""
    choose_backend(None, x.device.type, lambda: reason)
    return torch.ones((), dtype=torch.bool, device=x.device)


@_backend_runs.register_fake
def _(x, reason):
    return x.new_empty((), dtype=torch.bool)


def require_backend(x: Tensor, reason: str = "there is no Triton kernel for this op") -> None:
    """Refuse a chosen backend that has no kernel for an op written in plain PyTorch.

    In a graph the question is asked whenever it runs, so that it follows `use_backend` like an
    eager call.

    Args:
        x: any input of the op.
        reason: why there is no kernel.

    Raises:
        ValueError: see `choose_backend`.
    """
    if torch.compiler.is_compiling():
        runs = _backend_runs(x.detach(), reason)
        torch._assert_async(runs, "backend")  # pyright: ignore[reportPrivateImportUsage]
    else:
        choose_backend(None, x.device.type, lambda: reason)
