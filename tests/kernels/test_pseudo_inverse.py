"""The pseudo-inverse kernel in the interpreter, against the PyTorch op in float64."""

import pytest
import torch

pytest.importorskip("triton")

from hf_linear_attn.kernels.pseudo_inverse import pseudo_inverse
from hf_linear_attn.ops import nystrom_attention
from tests.errors import relative_error

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("m", [1, 5, 16, 33, 64])
@pytest.mark.parametrize("iterations", [1, 6])
def test_steps_and_gradient(m, iterations, guarded):
    # Entries far enough apart that the steps matter; uniform rows would be inverted at once.
    # Not normalised: rows of one sum would make the scale's gradient a matter of rounding.
    plain = torch.softmax(2 * torch.randn(2, 2, m, m), dim=-1) * (1 + torch.rand(2, 2, m, 1))
    A = guarded.around(plain).requires_grad_()
    Z = pseudo_inverse(A, iterations)
    upstream = torch.randn(2, 2, m, m)
    (found,) = torch.autograd.grad(Z, A, guarded.around(upstream))
    wide = plain.double().requires_grad_()
    expected = nystrom_attention.pseudo_inverse(wide, iterations)
    (wanted,) = torch.autograd.grad(expected, wide, upstream.double())
    assert relative_error(Z, expected) <= 1e-5
    assert relative_error(found, wanted, scale=1e-2 if m == 1 else None) <= 1e-4
