"""The pseudo-inverse kernel in the interpreter, against the PyTorch op in float64."""

import pytest
import torch

pytest.importorskip("triton")

from hf_linear_attn.kernels.configurations import TABLE
from hf_linear_attn.kernels.pseudo_inverse import pseudo_inverse
from hf_linear_attn.kernels.support import why_no_inverse
from hf_linear_attn.ops import nystrom_attention
from tests.errors import relative_error

pytestmark = pytest.mark.kernels


def matrices(m):
    """Few where they are large: a product of 64 rows takes the interpreter long."""
    # Entries far enough apart that the steps matter; uniform rows would be inverted at once.
    # Not normalised: rows of one sum would make the scale's gradient a matter of rounding.
    many = 2 if m <= 16 else 1
    return torch.softmax(2 * torch.randn(many, 1, m, m), dim=-1) * (1 + torch.rand(many, 1, m, 1))


@pytest.mark.parametrize(("m", "iterations"), [(1, 6), (5, 1), (16, 6), (33, 3), (64, 2)])
def test_steps_and_gradient(m, iterations, guarded):
    plain = matrices(m)
    A = guarded.around(plain).requires_grad_()
    Z = pseudo_inverse(A, iterations)
    upstream = torch.randn_like(plain)
    (found,) = torch.autograd.grad(Z, A, guarded.around(upstream))
    wide = plain.double().requires_grad_()
    expected = nystrom_attention.pseudo_inverse(wide, iterations)
    (wanted,) = torch.autograd.grad(expected, wide, upstream.double())
    assert relative_error(Z, expected) <= 1e-5
    assert relative_error(found, wanted, scale=1e-2 if m == 1 else None) <= 1e-4


def test_the_gradient_of_a_gradient(guarded):
    def second(inverse, A, direction):
        """Of the gradient, along a direction."""
        (first,) = torch.autograd.grad(inverse(A, 2).square().sum(), A, create_graph=True)
        (found,) = torch.autograd.grad((first * direction).sum(), A)
        return first.detach(), found

    plain = matrices(5)
    direction = torch.randn_like(plain)
    found = second(pseudo_inverse, guarded.around(plain).requires_grad_(), direction)
    wide = plain.double().requires_grad_()
    wanted = second(nystrom_attention.pseudo_inverse, wide, direction.double())
    for a, b in zip(found, wanted, strict=True):
        assert relative_error(a, b) <= 1e-4


def test_a_gradient_in_kernels_is_the_one_with_a_graph():
    A = matrices(16).requires_grad_()
    Z = pseudo_inverse(A, 3)
    upstream = torch.randn_like(Z)
    (plain,) = torch.autograd.grad(Z, A, upstream, retain_graph=True)
    with torch.autocast(A.device.type, torch.bfloat16):
        (graphed,) = torch.autograd.grad(Z, A, upstream, create_graph=True)
    assert not plain.requires_grad
    assert graphed.requires_grad
    assert relative_error(graphed, plain) <= 1e-4


def test_no_gradient_no_steps_kept():
    A = matrices(16)
    expected = nystrom_attention.pseudo_inverse(A.double(), 5)
    assert relative_error(pseudo_inverse(A, 5), expected) <= 1e-5


def test_matrices_of_any_layout(guarded):
    A = guarded.around(matrices(5).mT).requires_grad_()
    plain = A.detach().contiguous().requires_grad_()
    assert not A.is_contiguous()
    found = [torch.autograd.grad(pseudo_inverse(x, 2).sum(), x)[0] for x in (A, plain)]
    assert relative_error(*found) <= 1e-5


REFUSED = {
    "up to 64 rows": {"shape": (65, 65)},
    "in float32; got torch.float64": {"dtype": torch.float64},
    "not for the device 'meta'": {"device": "meta"},
}


@pytest.mark.parametrize(("words", "what"), REFUSED.items(), ids=REFUSED)
def test_what_has_no_kernel_is_refused(words, what):
    A = torch.ones(*what.get("shape", (5, 5)), dtype=what.get("dtype"), device=what.get("device"))
    assert words in why_no_inverse(A)
    with pytest.raises(ValueError, match=words):
        pseudo_inverse(A, 6)


def test_a_target_without_an_entry_is_refused(monkeypatch):
    for key in [key for key in TABLE if key[0] == "newton_schulz_backward" and key[2] == 32]:
        monkeypatch.delitem(TABLE, key)
    with pytest.raises(ValueError, match="no configuration of newton_schulz_backward fits"):
        pseudo_inverse(matrices(33)[..., :20, :20], 6)
    assert why_no_inverse(matrices(5)) is None
