"""Kernels run where their tensors are, whichever GPU is the current one."""

import contextlib

import pytest
import torch

pytest.importorskip("triton")

from hf_linear_attn.kernels import decode, launching, passes, pseudo_inverse
from tests.kernels.calls import Call
from tests.kernels.guards import INTERPRETED

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("index", [0, 1, 7])
def test_the_guard_makes_the_tensors_device_the_current_one(index):
    guard = launching.on_device(torch.device("cuda", index))
    assert isinstance(guard, torch.cuda.device)
    assert guard.idx == index


@pytest.fixture
def guarded_devices(monkeypatch):
    """Every launch must lie inside of the guard; the devices that were guarded, one a launch."""
    from triton.runtime.interpreter import GridExecutor

    inside, seen = [], []

    @contextlib.contextmanager
    def guard(device):
        inside.append(device)
        yield
        inside.pop()

    run = GridExecutor.__call__

    def launch(executor, *arguments, **named):
        assert inside, "a kernel is launched on whatever device is the current one"
        seen.append(inside[-1])
        return run(executor, *arguments, **named)

    for module in (passes, decode, pseudo_inverse):
        monkeypatch.setattr(module, "on_device", guard)
    monkeypatch.setattr(GridExecutor, "__call__", launch)
    return seen


@pytest.mark.skipif(not INTERPRETED, reason="looks at launches in Triton's interpreter")
@pytest.mark.parametrize("packed", [False, True])
def test_every_launch_is_inside_of_the_guard(packed, guarded_devices):
    call = Call(length=20, heads=1, groups=1, D=8, Dv=8, packed=packed, causal=not packed)
    x, settings = call.inputs(), call.settings()
    kept, _ = passes.forward_pass(x, settings, False)
    forward = len(guarded_devices)
    passes.backward_pass(x, settings, kept, torch.ones_like(x.v), None)
    assert 2 <= forward < len(guarded_devices)
    assert set(guarded_devices) == {torch.device("cpu")}


@pytest.mark.skipif(not INTERPRETED, reason="looks at launches in Triton's interpreter")
def test_the_launches_of_one_token_and_of_an_inverse_are_too(guarded_devices):
    call = Call(length=1, heads=1, groups=1, D=8, Dv=8, state=True)
    decode.decode(call.inputs(), call.settings())
    assert len(guarded_devices) == 1
    matrix = torch.softmax(torch.randn(1, 1, 4, 4), -1).requires_grad_()
    pseudo_inverse.pseudo_inverse(matrix, 1).sum().backward()
    assert len(guarded_devices) == 3
