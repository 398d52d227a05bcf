"""The watch over loads, stores and programs is one that sees."""

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from tests.kernels.guards import INTERPRETED

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter"),
]


@triton.jit
def copy(x, y, LOADED: tl.constexpr, STORED: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y + at, tl.load(x + at, mask=at < LOADED, other=0), mask=at < STORED)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_an_access_outside_of_a_tensor_is_an_error(dtype):
    whole = torch.ones(64, dtype=dtype)
    x, y = whole[8:15], torch.zeros(7, dtype=dtype)
    copy[(1,)](x, y, 7, 7, 8)
    assert torch.equal(x, y)
    with pytest.raises(Exception, match="loads 1 times outside"):
        copy[(1,)](x, y, 8, 7, 8)
    with pytest.raises(Exception, match="stores 1 times outside"):
        copy[(1,)](x, y, 7, 8, 8)


def test_programs_are_counted(kernels_run):
    x = torch.ones(8)
    for programs in (1, 6):
        copy[(programs, 2)](x, x.clone(), 8, 8, 8)
    assert kernels_run.programs == 14
