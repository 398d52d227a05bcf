"""Block and Nyström attention as operators: the rules of operators, eager's numbers."""

import pytest
import torch

from hf_linear_attn.attention import build_attention
from hf_linear_attn.ops import block_attention, nystrom_attention
from tests.errors import relative_error

B, H, G, N, D, DV, W = 3, 4, 2, 11, 6, 7, 4


def tensors():
    shapes = ((H, D), (G, D), (G, DV))
    # Laid out as projections leave them: heads behind the sequence.
    q, k, v = (torch.randn(B, N, h, d).transpose(1, 2).requires_grad_() for h, d in shapes)
    mask = torch.arange(N).expand(B, -1) >= torch.tensor([[0], [3], [5]])
    segments = (torch.arange(N) * 3 // N).expand(B, -1)
    return q, k, v, mask, segments


def block_call(causal, padded=False, packed=False, carried=False):
    q, k, v, mask, segments = tensors()
    positions = torch.arange(N)[None]
    state = None
    if carried:
        before = block_attention.block_attention(
            q, k, v, positions, causal=True, block_size=W
        )  # fmt: skip
        state = before[1].detach().requires_grad_()
        positions = positions + N
    return block_attention, (
        q, k, v, state, positions, mask if padded else None, segments if packed else None, causal,
        W, "softmax", False,
    )  # fmt: skip


def nystrom_call(padded=False, packed=False, convolved=False):
    q, k, v, mask, segments = tensors()
    weight = torch.randn(H, 1, 3, 1, requires_grad=True) if convolved else None
    return nystrom_attention, (
        q, k, v, weight, mask if padded else None, segments if packed else None, 3, 6,
    )  # fmt: skip


CALLS = {
    "block": lambda: block_call(False, padded=True),
    "block, packed": lambda: block_call(True, packed=True),
    "block, state": lambda: block_call(True, padded=True, carried=True),
    "nystrom": lambda: nystrom_call(padded=True),
    "nystrom, convolution": lambda: nystrom_call(padded=True, convolved=True),
    "nystrom, packed": lambda: nystrom_call(packed=True, convolved=True),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_operators_keep_the_rules_of_operators(call):
    torch.manual_seed(0)
    module, arguments = CALLS[call]()
    checks = ["schema", "faketensor", "autograd_registration", "aot_dispatch_dynamic"]
    checks = [f"test_{check}" for check in checks]
    torch.library.opcheck(module._in_graph.default, arguments, test_utils=checks)


@pytest.mark.parametrize("call", list(CALLS))
def test_operators_give_eager_s_numbers_and_gradients(call):
    module, arguments = CALLS[call]()
    leaves = [x for x in arguments if isinstance(x, torch.Tensor) and x.requires_grad]

    def run(function):
        outputs = [x for x in function(*arguments) if x is not None and x.numel()]
        torch.manual_seed(1)
        loss = sum((x * torch.randn(x.shape)).sum() for x in outputs)
        return [*outputs, *torch.autograd.grad(loss, leaves)]

    def eager(*arguments):
        found = module._compute(*arguments)
        return found if isinstance(found, tuple) else (found,)

    for found, expected in zip(run(module._in_graph), run(eager), strict=True):
        assert relative_error(found, expected) <= 1e-6


@pytest.mark.parametrize("call", list(CALLS))
def test_an_output_that_nobody_uses(call):
    module, arguments = CALLS[call]()
    out = module._in_graph(*arguments)[0]
    q = arguments[0]
    (found,) = torch.autograd.grad(out.sum(), q)
    eager = module._compute(*arguments)
    (expected,) = torch.autograd.grad((eager[0] if isinstance(eager, tuple) else eager).sum(), q)
    assert relative_error(found, expected) <= 1e-6


@pytest.mark.parametrize("call", ["block", "nystrom"])
def test_second_derivatives_of_an_operator_are_refused(call):
    module, arguments = CALLS[call]()
    out = module._in_graph(*arguments)[0]
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(out.square().sum(), arguments[0], create_graph=True)


@pytest.mark.parametrize(
    "name", ["transnormer_diag", pytest.param("nystrom", marks=pytest.mark.slow)]
)
def test_forward_derivatives_in_a_graph_are_eager_s(name):
    """An operator would give tangents of 0 without a word."""
    fields = {"block_size": 4} if name == "transnormer_diag" else {"num_landmarks": 3}
    layer = build_attention(name, fields)
    x, direction = torch.randn(1, 2, 7, 4), torch.randn(1, 2, 7, 4)

    def derivative(x):
        return torch.func.jvp(lambda x: layer(x, x, x, causal=False)[0], (x,), (direction,))[1]

    expected = derivative(x)
    assert expected.abs().max() > 0.1
    found = torch.compile(derivative, backend="aot_eager")(x)
    assert relative_error(found, expected) <= 1e-5
