"""Calls of linear attention for the tests of its kernels, and their comparison with the formula."""

from dataclasses import dataclass

import torch

from hf_linear_attn.kernels import passes
from hf_linear_attn.kernels.support import why_not
from hf_linear_attn.linear_attention_types import Inputs, Settings
from hf_linear_attn.ops import passes as torch_passes
from tests.errors import relative_error
from tests.kernels import formula

TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


@dataclass(frozen=True)
class Call:
    """What a call looks like."""

    length: int = 70
    keys: int | None = None
    batch: int = 1
    heads: int = 2
    groups: int = 2
    D: int = 16
    Dv: int = 24
    dtype: torch.dtype = torch.float32
    feature_map: str = "relu"
    causal: bool = True
    normalize: bool = True
    cos: bool = True
    mask: bool = False
    packed: bool = False
    state: bool = False
    save: bool = True
    mean: float = 0.0

    def settings(self):
        return Settings(self.feature_map, self.causal, self.normalize, 64, 1e-6)

    def inputs(self):
        """Random `Inputs`; the horizon is near enough that the cosine matters."""
        N, M = self.length, self.keys or self.length
        q = torch.randn(self.batch, self.heads, N, self.D)
        k = torch.randn(self.batch, self.groups, M, self.D)
        v = torch.randn(self.batch, self.groups, M, self.Dv) + self.mean
        if self.feature_map == "identity":
            q, k = q.abs(), k.abs()
        q, k, v = (x.to(self.dtype) for x in (q, k, v))
        angles = [torch.arange(n)[None] * (1.5 / max(N, M)) for n in (N, M)]
        mask = segments = state = None
        if self.mask:
            mask = torch.ones(self.batch, M, dtype=torch.bool)
            mask[:, 3:9] = mask[:, -20:] = False
            mask[-1, : M // 3] = False
        if self.packed:
            segments = (torch.arange(N) * 5 // N).repeat(self.batch, 1)
            segments[0, -7:] = 2**40  # ids need not be near each other, nor fit 32 bits
        if self.state:
            features = self.D * (1 + self.cos)
            state = torch.rand(self.batch, self.groups, features, self.Dv + self.normalize)
        angles = angles if self.cos else [None, None]
        return Inputs(q, k, v, state, *angles, mask, segments)


def upstream(call, x):
    """Gradients of the output and of the final state."""
    grad = torch.randn(*x.q.shape[:3], call.Dv).to(call.dtype)
    if call.mask and call.keys is None:
        grad = grad * x.key_mask[:, None, :, None]
    if not call.causal or call.packed:
        return grad, None
    features = call.D * (1 + call.cos)
    return grad, torch.randn(call.batch, call.groups, features, call.Dv + call.normalize)


def wide(x):
    """`Inputs` in float64, leaves of a graph."""
    leaves = [t.double() if t is not None and t.is_floating_point() else t for t in x]
    return Inputs(
        *[t.requires_grad_() if i < 4 and t is not None else t for i, t in enumerate(leaves)]
    )


def check(call, guard, clean=None, given=None, grad=None):
    """Forward and backward equal the formula and the PyTorch passes.

    Args:
        call: what the call looks like.
        guard: `Guards` to put tensors between.
        clean: `Inputs`; None = random ones.
        given: the same in another layout, for the kernels; None = copies between guards.
        grad: gradient of the output; None = a random one.
    """
    tolerance = TOLERANCE[call.dtype]
    clean, settings = clean or call.inputs(), call.settings()
    drawn, grad_final = upstream(call, clean)
    grad = drawn if grad is None else grad
    x = given or Inputs(*[guard.around(t) for t in clean])
    assert why_not(x) is None
    kept, final = passes.forward_pass(x, settings, call.save)
    assert kept.out.dtype == call.dtype
    assert (kept.states is not None) == call.save
    found = passes.backward_pass(x, settings, kept, guard.around(grad), guard.around(grad_final))
    guard.check()

    y = wide(clean)
    out, state = formula.linear_attention(y, settings)
    goal = (out * grad.double()).sum()
    assert relative_error(kept.out, out) <= tolerance
    if grad_final is not None:
        assert final.dtype == torch.float32
        assert relative_error(final, state) <= tolerance
        goal = goal + (state * grad_final.double()).sum()
    wanted = torch.autograd.grad(goal, [t for t in y[:4] if t is not None])
    for name, a, b in zip(("q", "k", "v", "state"), found, wanted, strict=False):
        assert relative_error(a, b) <= tolerance, f"gradient of {name}"
    _check_against_torch(call, clean, (kept, final, found), (grad, grad_final), tolerance)


def _check_against_torch(call, x, results, grads, tolerance):
    """The contract: what the PyTorch passes return, in their layouts."""
    kept, final, found = results
    x = Inputs(*[t.double() if t is not None and t.is_floating_point() else t for t in x])
    grads = [None if g is None else g.double() for g in grads]
    other, other_final = torch_passes.forward_pass(x, call.settings(), True)
    wanted = torch_passes.backward_pass(x, call.settings(), other, *grads)
    assert (kept.total is None) == (other.total is None)
    assert (final is None) == (other_final is None)
    if kept.total is not None:
        assert relative_error(kept.total, other.total) <= tolerance
    if kept.rest is not None:
        exact = kept.out.double() + kept.rest.flatten(1, 2).double()
        assert relative_error(exact, other.out) <= tolerance / 2
    if final is not None:
        assert relative_error(final, other_final) <= tolerance
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        assert a is None or relative_error(a, b) <= tolerance
