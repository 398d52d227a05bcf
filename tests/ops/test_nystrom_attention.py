"""Nyström attention beyond its values: landmarks of rows without padding, and its derivatives."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from hf_linear_attn.ops.nystrom_attention import (
    nystrom_attention,
    segment_averages,
    segment_means,
)
from tests.errors import relative_error


@pytest.mark.parametrize(("length", "m"), [(12, 4), (13, 4), (15, 4), (7, 7), (9, 1)])
def test_means_of_full_rows_are_those_of_the_general_form(length, m):
    x = torch.randn(2, 3, length, 5, dtype=torch.float64)
    averages = segment_averages(torch.ones(1, length, dtype=torch.bool), m)
    assert torch.allclose(segment_means(x, m), averages @ x, rtol=1e-12, atol=1e-12)


def inputs(length=11):
    return [torch.randn(2, 2, length, 4, dtype=torch.float64).requires_grad_() for _ in range(3)]


def attend(q, k, v):
    return nystrom_attention(q, k, v, num_landmarks=3)


@pytest.mark.parametrize("length", [3, 11])
def test_a_row_without_a_mask_is_one_with_all_of_it_real(length):
    tensors = inputs(length)
    masked = nystrom_attention(
        *tensors, num_landmarks=3, key_mask=torch.ones(2, length, dtype=torch.bool)
    )
    plain, upstream = attend(*tensors), torch.randn_like(masked)
    assert relative_error(plain, masked) <= 1e-12
    found, wanted = (torch.autograd.grad(out, tensors, upstream) for out in (plain, masked))
    for a, b in zip(found, wanted, strict=True):
        assert relative_error(a, b) <= 1e-10


@pytest.mark.slow
def test_second_derivatives_with_the_fused_attention_switched_off():
    tensors = inputs(7)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(attend, tensors)


def test_forward_derivatives():
    tensors = [x.detach() for x in inputs()]
    directions = [torch.randn_like(x) for x in tensors]
    _, found = torch.func.jvp(attend, tuple(tensors), tuple(directions))
    step = 1e-6
    ahead, behind = (
        attend(*(x + sign * step * d for x, d in zip(tensors, directions, strict=True)))
        for sign in (1, -1)
    )
    assert relative_error(found, (ahead - behind) / (2 * step)) <= 1e-6
