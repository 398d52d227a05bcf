"""Operators that compilers and exporters take whole, with gradients by running them again.

A graph of the parts of block or Nyström attention would take facts of the length it was traced at
(one block or several, more tokens than landmarks) for facts of every length. As an operator the op
looks at the length when it runs, and asks for the backend then. The backward pass runs the forward
pass once more: nothing but its inputs is kept. It has no second derivatives, and no forward-mode
ones: under such a transform the op is traced in parts (`takes_operators`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hf_linear_attn.namespace import NAMESPACE


def takes_operators() -> bool:
    """A graph is being made, and not one of derivatives that an operator would not give."""
    return torch.compiler.is_compiling() and not transformed()


def transformed() -> bool:
    """Is the call inside of a transform of `torch.func`, or of forward-mode differentiation?"""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_OPERATORS = getattr(torch.ops, NAMESPACE)


def recomputed_op(
    name: str,
    tensors: int,
    schema: str,
    function: Callable[..., tuple[Tensor, ...]],
    fake: Callable[..., tuple[Tensor, ...]],
) -> Callable[..., tuple[Tensor, ...]]:
    """An operator `name` of our namespace and its backward pass.

    Args:
        name: of the operator.
        tensors: the first so many arguments are tensors or None; those of a floating dtype get
            gradients.
        schema: all arguments, in the operator schema language.
        function: what it computes; returns two contiguous tensors, none of them an input.
        fake: shapes and dtypes of the same, as meta tensors.
    """
    outputs = "(Tensor, Tensor)"
    _LIBRARY.define(f"{name}({schema}) -> {outputs}")
    _LIBRARY.define(f"{name}_backward(Tensor?[] upstream, {schema}) -> Tensor[]")

    def backward(upstream: list[Tensor | None], *arguments: Any) -> list[Tensor]:
        return _gradients(function, upstream, list(arguments), tensors)

    def fake_backward(upstream: list[Tensor | None], *arguments: Any) -> list[Tensor]:
        return [torch.empty_like(x).contiguous() for x in _leaves(arguments[:tensors])]

    # No autograd kernel of its own: inside the backward operator autograd has to work.
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    _LIBRARY.impl(f"{name}_backward", backward, "CompositeExplicitAutograd")
    full = f"{NAMESPACE}::{name}"
    torch.library.register_fake(full, fake, lib=_LIBRARY)
    torch.library.register_fake(f"{full}_backward", fake_backward, lib=_LIBRARY)
    packet = getattr(_OPERATORS, f"{name}_backward")

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.settings = inputs[tensors:]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:tensors])

    def differentiate(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # Only where a graph of the gradients is asked for (create_graph).
            raise RuntimeError(
                f"{name} has first derivatives only in a compiled or exported graph; take second "
                "ones of the eager model, for Nyström attention under "
                "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)."
            )
        inputs = ctx.saved_tensors
        found = iter(packet(list(upstream), *inputs, *ctx.settings))
        grads = [next(found) if x is not None and x.is_floating_point() else None for x in inputs]
        return *grads, *[None] * len(ctx.settings)

    torch.library.register_autograd(full, differentiate, setup_context=keep, lib=_LIBRARY)
    return getattr(_OPERATORS, name)


def _leaves(tensors: Any) -> list[Tensor]:
    return [x for x in tensors if x is not None and x.is_floating_point()]


def _gradients(
    function: Callable[..., tuple[Tensor, ...]],
    upstream: list[Tensor | None],
    arguments: list[Any],
    tensors: int,
) -> list[Tensor]:
    """Gradients of the floating inputs, contiguous, with the forward pass run again."""
    with torch.enable_grad():
        for i, x in enumerate(arguments[:tensors]):
            if x is not None and x.is_floating_point():
                arguments[i] = x.detach().requires_grad_()
        leaves = _leaves(arguments[:tensors])
        given = [
            (x, grad)
            for x, grad in zip(function(*arguments), upstream, strict=True)
            # What stands for "no state" depends on nothing.
            if grad is not None and x.requires_grad
        ]
        if not given:
            return [torch.zeros_like(x).contiguous() for x in leaves]
        results, grads = zip(*given, strict=True)
        found = torch.autograd.grad(results, leaves, grads, materialize_grads=True)
    return [x.contiguous() for x in found]
