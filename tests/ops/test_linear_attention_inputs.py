"""What linear attention refuses, each with what was got and what is accepted."""

import math

import pytest
import torch

from hf_linear_attn.ops import linear_attention
from tests.errors import relative_error

N = 6


def call(**changes):
    arguments = {name: torch.rand(2, 2, N, 4) for name in "qkv"} | {"causal": True}
    return linear_attention(**(arguments | changes))


REFUSED = {
    "no tensor": ({"q": None}, "q must be a float tensor"),
    "integers": ({"v": torch.ones(2, 2, N, 4, dtype=torch.long)}, "v must be a float tensor"),
    "no heads": ({n: torch.rand(2, 0, N, 4) for n in "qkv"}, "kv_heads"),
    "chunk": ({"chunk_size": 4.0}, "chunk_size is 4.0"),
    "eps of nothing": ({"eps": 0}, "eps is 0"),
    "eps that is none": ({"eps": math.nan}, "eps is nan"),
    "float segments": ({"segments": torch.zeros(2, N)}, "segments must be int"),
    "bool segments": ({"segments": torch.zeros(2, N).bool()}, "segments must be int"),
    "int mask": ({"key_mask": torch.ones(2, N).long()}, "key_mask must be bool"),
    "int state": ({"state": torch.zeros(2, 2, 4, 5).long()}, "state must be float"),
    "complex state": ({"state": torch.zeros(2, 2, 4, 5) + 0j}, "state must be float"),
    "a number": ({"state": 1}, "state must be float"),
    "int angles": (
        {"q_angles": torch.zeros(1, N).long(), "k_angles": torch.zeros(1, N)}, "q_angles must be",
    ),
    "learned angles": (
        {"q_angles": torch.zeros(1, N), "k_angles": torch.zeros(1, N).requires_grad_()},
        "k_angles wants gradients",
    ),
    "one side": ({"q_angles": torch.zeros(1, N)}, "only one of them"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        call(**changes)


@pytest.mark.parametrize("normalize", [True, False])
def test_what_backward_does_not_need_may_be_changed_in_place(normalize):
    q = torch.rand(1, 1, N, 4, requires_grad=True)
    settings = {"causal": True, "normalize": normalize}
    (wanted,) = torch.autograd.grad(linear_attention(q, q, q, **settings)[0].sum(), q)
    out, state = linear_attention(q, q, q, **settings)
    state.add_(1)
    if not normalize:
        out.mul_(2)
    (found,) = torch.autograd.grad(out.sum() / (1 if normalize else 2), q)
    assert relative_error(found, wanted) <= 1e-6


def test_a_gradient_of_the_state_is_left_as_it_was():
    q = torch.rand(1, 1, 3, 4, requires_grad=True)
    _, state = linear_attention(q, q, q, causal=True, chunk_size=1)
    upstream = torch.rand_like(state)
    before = upstream.clone()
    torch.autograd.grad(state, q, upstream)
    assert torch.equal(upstream, before)
