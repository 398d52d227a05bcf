"""The decode step in the interpreter: one token and a state against the formula."""

import pytest
import torch

pytest.importorskip("triton")

from hf_linear_attn.kernels.decode import decode
from hf_linear_attn.linear_attention_types import Inputs
from tests.errors import relative_error
from tests.kernels import formula
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


@pytest.mark.parametrize("call", STEPS.values(), ids=STEPS)
def test_one_token(call, guarded):
    clean = call.inputs()
    if call.cos:
        clean = clean._replace(q_angles=torch.tensor([[0.7]]), k_angles=torch.tensor([[0.7]]))
    x = Inputs(*[guarded.around(t) for t in clean])
    out, state = decode(x, call.settings())
    expected, expected_state = formula.linear_attention(wide(clean), call.settings())
    assert out.dtype == call.dtype
    assert relative_error(out, expected) <= TOLERANCE[call.dtype]
    assert relative_error(state, expected_state) <= 1e-6


def test_a_pad_leaves_the_state_alone(guarded):
    call = Call(length=1, batch=2, state=True)
    clean = call.inputs()
    dirty = [t.masked_fill(torch.tensor([True, False])[:, None, None, None], torch.nan)
             for t in (clean.k, clean.v)]  # fmt: skip
    mask = torch.tensor([[False], [True]])
    x = clean._replace(k=dirty[0], v=dirty[1], key_mask=mask)
    out, state = decode(Inputs(*[guarded.around(t) for t in x]), call.settings())
    assert torch.equal(state[0], clean.state[0])
    assert torch.isfinite(out).all()
    assert not torch.equal(state[1], clean.state[1])
