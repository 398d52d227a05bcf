"""The linear-attention op on a GPU: against the formula, and past 2³¹ elements."""

import math

import pytest
import torch

from hf_linear_attn.ops import linear_attention
from tests import reference
from tests.errors import relative_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}


def draw(*shape, dtype):
    return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()


def cosformer(q, k, v, causal):
    n = q.shape[2]
    a = torch.arange(n, dtype=torch.float32, device=q.device)[None] * (math.pi / 2 / n)
    return linear_attention(
        q, k, v, causal=causal, feature_map="relu", q_angles=a, k_angles=a
    )[0]  # fmt: skip


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "width"), [(1, 64), (63, 64), (130, 80), (1000, 128)])
def test_the_formula_with_gradients(length, width, causal, dtype):
    tensors = [draw(2, 3, length, width, dtype=dtype) for _ in range(3)]
    out = cosformer(*tensors, causal)
    # The formula makes tensors of its own, on the CPU.
    wide = [x.detach().double().cpu().requires_grad_() for x in tensors]
    wanted = reference.cosformer(*wide, causal=causal, max_position_embeddings=length)
    assert relative_error(out.cpu(), wanted) <= TOLERANCE[dtype]
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, tensors, upstream)
    expected = torch.autograd.grad(wanted, wide, upstream.double().cpu())
    scale = upstream.double().cpu().norm() if length == 1 else None
    for a, b in zip(found, expected, strict=True):
        assert relative_error(a.cpu(), b, scale) <= TOLERANCE[dtype]


@pytest.mark.parametrize("causal", [False, True])
def test_b04_more_elements_than_a_32_bit_offset_can_count(causal):
    """The last row of a batch of more than 2³¹ elements is what it is alone."""
    batch, heads, length, width = 33, 16, 32_768, 128
    assert batch * heads * length * width > 2**31
    free, _ = torch.cuda.mem_get_info()
    if free < 40 * 2**30:
        pytest.skip(f"needs 40 GiB of GPU memory; {free / 2**30:.0f} are free")
    with torch.no_grad():
        q, k, v = (
            torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        )
        whole = cosformer(q, k, v, causal)
        for row in (0, batch - 1):
            alone = cosformer(*(x[row : row + 1].clone() for x in (q, k, v)), causal)
            assert relative_error(whole[row : row + 1], alone) <= 1e-3


def test_b04_forward_and_backward_past_the_boundary():
    """8 rows of 65,544 tokens, 32 heads of 128: the last row is what it is alone, gradients too.

    Of its last head the last 2,048 tokens lie behind 2³¹ elements.
    """
    batch, heads, length, width = 8, 32, 65_544, 128
    assert batch * heads * length * width == 2**31 + 2048 * width
    free, _ = torch.cuda.mem_get_info()
    if free < 100 * 2**30:
        pytest.skip(f"needs 100 GiB of GPU memory; {free / 2**30:.0f} are free")
    tensors = [draw(batch, heads, length, width, dtype=torch.bfloat16) for _ in range(3)]
    last = [x.detach()[-1:].clone().requires_grad_() for x in tensors]
    upstream = torch.randn(1, heads, length, width, device="cuda", dtype=torch.bfloat16)
    results = []
    for given, rows in ((last, 1), (tensors, batch)):
        out, _ = linear_attention(
            *given, causal=True, feature_map="elu_plus_one", recompute_states=True
        )
        grads = torch.autograd.grad(out, given, upstream.expand(rows, -1, -1, -1))
        results.append([x[-1:].detach().clone() for x in (out, *grads)])
        del out, grads
    for alone, whole in zip(*results, strict=True):
        assert relative_error(whole, alone) <= 2e-2
        # What lies behind the boundary by itself: a few wrong tokens vanish in a large norm.
        assert relative_error(whole[0, -1, -2048:], alone[0, -1, -2048:]) <= 2e-2


@pytest.mark.parametrize("causal", [False, True])
def test_tokens_beyond_65536_are_attended_to(causal):
    """A grid's second dimension ends at 65,535; PyTorch's passes have no grid of their own."""
    length = 65_536 + 130
    tensors = [draw(1, 2, length, 16, dtype=torch.float32) for _ in range(3)]
    results = []
    for backend in ("torch", None):
        out, _ = linear_attention(
            *tensors, causal=causal, feature_map="elu_plus_one", backend=backend
        )
        upstream = torch.zeros_like(out)
        upstream[:, :, -200:] = 1
        grads = torch.autograd.grad(out, tensors, upstream)
        results.append([x[:, :, -200:] for x in (out, *grads)])
    for wanted, found in zip(*results, strict=True):
        assert relative_error(found, wanted) <= TOLERANCE[torch.float32]
