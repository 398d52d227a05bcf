"""The decode step in the interpreter: one token and a state against the formula."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from hf_linear_attn.kernels.decode import decode
from hf_linear_attn.linear_attention_types import Inputs
from tests.errors import relative_error
from tests.kernels import far_apart, formula
from tests.kernels.calls import TOLERANCE, Call, wide

pytestmark = pytest.mark.kernels

STEPS = {
    "relu, cos": Call(length=1, state=True),
    "no state yet": Call(length=1, feature_map="elu_plus_one"),
    "grouped heads": Call(length=1, batch=2, heads=4, state=True, D=20, Dv=24),
    "no normaliser": Call(length=1, feature_map="elu", normalize=False, cos=False, state=True),
    "bf16": Call(length=1, dtype=torch.bfloat16, cos=False, feature_map="elu_plus_one", state=True),
    "fp16": Call(length=1, dtype=torch.float16, state=True),
}


def inputs(call):
    """Random `Inputs` of one token that is not the first."""
    x = call.inputs()
    if call.cos:
        x = x._replace(q_angles=torch.tensor([[0.7]]), k_angles=torch.tensor([[0.7]]))
    return x


def check(call, clean, x):
    out, state = decode(x, call.settings())
    expected, expected_state = formula.linear_attention(wide(clean), call.settings())
    assert out.dtype == call.dtype
    assert relative_error(out, expected) <= TOLERANCE[call.dtype]
    assert relative_error(state, expected_state) <= 1e-6


@pytest.mark.parametrize("call", STEPS.values(), ids=STEPS)
def test_one_token(call, guarded):
    clean = inputs(call)
    check(call, clean, Inputs(*[guarded.around(t) for t in clean]))


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize(("D", "Dv"), [(20, 16), (24, 48), (80, 48), (192, 16), (16, 192)])
def test_b02_any_head_size(D, Dv, dtype, guarded):
    clean = inputs(call := Call(length=1, D=D, Dv=Dv, dtype=dtype, state=True))
    check(call, clean, Inputs(*[guarded.around(t) for t in clean]))


def test_b04_rows_beyond_32_bits(tmp_path, monkeypatch):
    far_apart.prepare(monkeypatch)
    call = Call(length=1, batch=2, Dv=16, dtype=torch.bfloat16, cos=False, state=True)
    clean = call.inputs()
    strides = (2**31 + 64, 1 << 12, 16, 1)
    views = [far_apart.spread(x, strides, tmp_path, str(i)) for i, x in enumerate(clean[:3])]
    check(call, clean, Inputs(*views, *clean[3:]))


def test_b05_a_sum_of_bf16_tokens_passes_256(guarded):
    """Sums in bf16 would stick there."""
    zeros = guarded.around(torch.zeros(1, 1, 1, 4, dtype=torch.bfloat16))
    state = guarded.around(torch.full((1, 1, 4, 5), 256.0))
    call = Call(feature_map="elu_plus_one", cos=False)
    for count in (257, 258, 259, 260):
        x = Inputs(zeros, zeros, zeros, state, None, None, None, None)
        out, state = decode(x, call.settings())
        assert (state[..., :4] == 256).all()
        assert (state[..., 4] == count).all()
    assert relative_error(out, torch.full((1, 1, 1, 4), 256 / 260)) <= 4e-3


@pytest.mark.parametrize("which", ["fused", "transposed", "expanded"])
def test_b11_strides_are_honoured(which, guarded):
    call = replace(STEPS["grouped heads"], D=24, heads=2, cos=False)
    clean = call.inputs()
    if which == "fused":  # batch, seq, {q, k, v}, heads, head_dim
        views = [x.transpose(1, 2) for x in torch.randn(2, 1, 3, 2, 24).unbind(2)]
    elif which == "transposed":
        views = list(torch.randn(3, 24, 2, 2, 1).permute(0, 3, 2, 4, 1))
    else:
        views = list(torch.randn(3, 1, 1, 1, 24).expand(3, 2, 2, 1, 24))
    clean = Inputs(*views, *clean[3:])
    check(call, clean, Inputs(*[guarded.around(t) for t in clean]))


@pytest.mark.parametrize("feature_map", ["relu", "elu_plus_one"])
def test_a_pad_leaves_the_state_alone(feature_map, guarded):
    """Of nothing elu + 1 makes 1, which must not be summed up."""
    call = Call(length=1, batch=2, state=True, feature_map=feature_map)
    clean = call.inputs()
    dirty = [t.masked_fill(torch.tensor([True, False])[:, None, None, None], torch.nan)
             for t in (clean.k, clean.v)]  # fmt: skip
    mask = torch.tensor([[False], [True]])
    x = clean._replace(k=dirty[0], v=dirty[1], key_mask=mask)
    out, state = decode(Inputs(*[guarded.around(t) for t in x]), call.settings())
    assert torch.equal(state[0], clean.state[0])
    assert torch.isfinite(out).all()
    assert not torch.equal(state[1], clean.state[1])
