"""One token at a time, without gradients: what the whole sequence gives."""

import itertools

import pytest
import torch

from hf_linear_attn.ops import linear_attention
from tests.errors import relative_error

LENGTH = 20
KINDS = list(itertools.product(["relu", "elu_plus_one", "elu"], [True, False], [True, False]))


def draw(dtype=torch.float32, batch=2, heads=4, groups=2):
    q = torch.randn(batch, heads, LENGTH, 6, dtype=dtype)
    k = torch.randn(batch, groups, LENGTH, 6, dtype=dtype)
    v = torch.randn(batch, groups, LENGTH, 5, dtype=dtype)
    return q, k, v


def steps(q, k, v, *, angles=None, key_mask=None, **settings):
    state, outs = None, []
    for t in range(LENGTH):
        at = slice(t, t + 1)
        places = {} if angles is None else {"q_angles": angles[:, at], "k_angles": angles[:, at]}
        mask = None if key_mask is None else key_mask[:, at]
        before = None if state is None else state.clone()
        out, new = linear_attention(
            q[:, :, at], k[:, :, at], v[:, :, at], causal=True, state=state, key_mask=mask,
            **places, **settings,
        )  # fmt: skip
        assert state is None or torch.equal(state, before)
        outs.append(out)
        state = new
    return torch.cat(outs, 2), state


@pytest.mark.parametrize(("feature_map", "normalize", "turned"), KINDS)
def test_steps_are_the_sequence(feature_map, normalize, turned):
    if feature_map == "elu" and normalize:
        pytest.skip("sums of weights of both signs have no normaliser")
    tensors = draw()
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[1, :7] = False
    angles = torch.linspace(0, 1.5, LENGTH)[None] if turned else None
    places = {"q_angles": angles, "k_angles": angles}
    settings = {"feature_map": feature_map, "normalize": normalize}
    with torch.no_grad():
        wanted, last = linear_attention(
            *tensors, causal=True, key_mask=mask, chunk_size=8, **places, **settings
        )
        found, state = steps(*tensors, angles=angles, key_mask=mask, **settings)
    assert relative_error(found, wanted) < 1e-5
    assert relative_error(state, last) < 1e-5
    assert wanted[0].abs().mean() > 0.05


def test_what_stands_at_a_pad_does_not_matter():
    q, k, v = draw()
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[1, 5:9] = False
    wanted = steps(q, k, v, key_mask=mask, feature_map="relu")[0]
    k[1, :, 5:9], v[1, :, 5:9] = torch.nan, torch.inf
    assert torch.equal(steps(q, k, v, key_mask=mask, feature_map="relu")[0], wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_states_of_16_bit_tokens_are_fp32(dtype):
    tensors = draw(dtype)
    settings = {"feature_map": "elu_plus_one"}
    found, state = steps(*tensors, **settings)
    wanted, _ = steps(*(x.double() for x in tensors), **settings)
    assert (found.dtype, state.dtype) == (dtype, torch.float32)
    assert relative_error(found, wanted) < torch.finfo(dtype).eps
    with torch.autocast("cpu", dtype=dtype):
        again, held = steps(*tensors, **settings)
    assert torch.equal(again, found)
    assert torch.equal(held, state)


def test_query_and_key_have_angles_of_their_own():
    q, k, v = (x[:, :, :1] for x in draw())
    settings = {"causal": True, "feature_map": "relu", "normalize": False}
    places = {"q_angles": torch.full((1, 1), 0.2), "k_angles": torch.full((1, 1), 1.1)}
    with torch.no_grad():
        found, state = linear_attention(q, k, v, **places, **settings)
    wanted, held = linear_attention(q.requires_grad_(), k, v, **places, **settings)
    assert relative_error(found, wanted) < 1e-6
    assert relative_error(state, held) < 1e-6
