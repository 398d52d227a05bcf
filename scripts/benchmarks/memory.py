"""Suite `memory`: what is kept for the backward pass, the peak, and the error at a long length."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from benchmarks.allocator import allocated_by
from benchmarks.bench import Bench, Case, Settings
from benchmarks.cores import (
    BIDIRECTIONAL,
    CAUSAL,
    Core,
    Inputs,
    cosformer,
    draw,
    eager_softmax,
    forward_backward,
    softmax,
)
from benchmarks.exact import causal_cosformer
from benchmarks.op import BASE_LENGTH, BIDIRECTIONAL_LENGTHS, CAUSAL_LENGTHS

ERROR_LENGTH = 16_384
# The float64 formula takes seconds a head at that length.
ERROR_HEADS = 2
# Beyond it the matrices of all pairs take several gigabytes.
EAGER_LONGEST = 2048


def cases(settings: Settings) -> list[Case]:
    """Saved tensors, peaks by length, errors against float64."""
    own = settings.lengths
    return [
        saved(BASE_LENGTH if own is None else own[-1]),
        *peaks(settings.lengths_or(CAUSAL_LENGTHS), settings.lengths_or(BIDIRECTIONAL_LENGTHS)),
        Case("errors against float64", partial(_errors, length=own[-1] if own else ERROR_LENGTH)),
    ]


def saved(length: int) -> Case:
    """What causal cosFormer keeps between the passes."""
    return Case("tensors kept for the backward pass", partial(_saved, length=length))


def peaks(causal: Sequence[int], bidirectional: Sequence[int]) -> list[Case]:
    """The peak of forward + backward, a case a length and kind."""
    return [
        Case(f"memory of {kind} attention, {n:,} tokens", partial(_peak, kind=kind, length=n))
        for kind, lengths in (("causal", causal), ("bidirectional", bidirectional))
        for n in lengths
    ]


def saved_bytes(core: Core, inputs: Inputs, **keywords: Any) -> int:
    """Bytes that autograd saves beyond q, k, v and the output, each storage counted once."""
    storages: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        out = core(*inputs.leaves, **keywords)
    known = {x.untyped_storage().data_ptr() for x in (*inputs.leaves, out)}
    return sum(size for place, size in storages.items() if place not in known)


def _saved(bench: Bench, *, length: int) -> None:
    inputs = draw(bench.settings, length)
    unit = inputs.q.numel() * inputs.q.element_size()
    for name, recompute in (("default", False), ("recompute", True)):
        keywords: dict[str, Any] = {"causal": True, "recompute_states": recompute}
        size = saved_bytes(cosformer, inputs, **keywords)
        forward = partial(cosformer, *inputs.leaves, **keywords)
        # What an autograd function keeps past the hooks shows here.
        held = allocated_by(forward, bench.settings.device).kept - unit
        where = f"of causal cosformer ({name}), in units of one (B, H, N, D) tensor, N = {length:,}"
        put = bench.results.number
        put(f"memory/saved_units/cosformer/{name}", size / unit,
            f"saved for backward beyond q, k, v, output, {where}", less=True)  # fmt: skip
        put(f"memory/held_units/cosformer/{name}", held / unit,
            f"allocated after forward beyond the output, {where}", less=True)  # fmt: skip


def _peak(bench: Bench, *, kind: str, length: int) -> None:
    cores = {"softmax": softmax, **(CAUSAL if kind == "causal" else BIDIRECTIONAL)}
    if length <= EAGER_LONGEST:
        cores["eager_softmax"] = eager_softmax
    inputs = draw(bench.settings, length)
    for name, core in cores.items():
        call = forward_backward(core, inputs, causal=kind == "causal")
        peak = allocated_by(call, bench.settings.device).peak
        bench.results.sizes[f"memory/peak/{kind}/{name}/{length}"] = peak


def _errors(bench: Bench, *, length: int) -> None:
    """‖found − exact‖ / ‖exact‖; the exact one is computed from the rounded inputs."""
    drawn = draw(bench.settings, length, heads=ERROR_HEADS)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        inputs = drawn.to(dtype)
        out = cosformer(*inputs.leaves, causal=True)
        grads = torch.autograd.grad(out, inputs.leaves, inputs.grad)
        wanted, *wanted_grads = causal_cosformer(*inputs.leaves, inputs.grad, length)
        worst = max(_distance(*pair) for pair in zip(grads, wanted_grads, strict=True))
        where = f"{name} causal cosformer against float64, {length:,} tokens"
        put = bench.results.number
        put(f"memory/error/cosformer/{name}/forward", _distance(out, wanted),
            f"relative error of the output, {where}", less=True)  # fmt: skip
        put(f"memory/error/cosformer/{name}/gradients", worst,
            f"largest relative error of the three gradients, {where}", less=True)  # fmt: skip


def _distance(found: Tensor, exact: Tensor) -> float:
    return float((found.detach().double() - exact).norm() / exact.norm())
