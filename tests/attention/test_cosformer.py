"""cosFormer's horizon, positions and exact values."""

import math

import pytest
import torch

from hf_linear_attn import CosformerAttention
from hf_linear_attn.attention import build_attention
from hf_linear_attn.attention.rotary import RotaryEmbedding
from tests.errors import relative_error
from tests.reference import cosformer as formula


def ones(length, batch=1):
    return torch.ones(batch, 1, length, 1, dtype=torch.float64)


def draw(length, batch=2, dtype=torch.float64):
    return [torch.randn(batch, 3, length, 24, dtype=dtype) for _ in range(3)]


@pytest.mark.parametrize("padded_to", [2, 4, 8])
@pytest.mark.parametrize("side", ["left", "right"])
def test_b12_the_horizon_does_not_follow_the_padded_length(padded_to, side):
    pads = padded_to - 2
    v = torch.tensor([0.0, 1], dtype=torch.float64)
    mask = torch.ones(2, dtype=torch.bool)
    ends = (pads, 0) if side == "left" else (0, pads)
    v = torch.nn.functional.pad(v, ends, value=9).view(1, 1, -1, 1)
    mask = torch.nn.functional.pad(mask, ends)
    out, _ = CosformerAttention(cos_horizon=4)(
        ones(padded_to), ones(padded_to), v, causal=False, key_mask=mask[None]
    )
    real = out.flatten()[mask]
    assert real.tolist() == pytest.approx([0.480217, 0.519783], abs=5e-7)


def test_a_prefix_does_not_change_when_more_tokens_follow():
    attention = CosformerAttention(cos_horizon=4)
    v = torch.tensor([0.0, 1, 5, 7], dtype=torch.float64).view(1, 1, 4, 1)
    for length in (2, 3, 4):
        out, _ = attention(ones(length), ones(length), v[:, :, :length], causal=True)
        assert out.flatten()[:2].tolist() == pytest.approx([0, 0.519783], abs=5e-7)


def test_b38_a_position_beyond_the_horizon_is_an_error():
    attention = CosformerAttention(cos_horizon=4)
    attention(ones(4), ones(4), ones(4), causal=True)
    with pytest.raises(ValueError, match="position 4 is outside cosFormer's horizon of 4 tokens"):
        attention(ones(5), ones(5), ones(5), causal=True)
    # What silent use would divide by: with M = 4 it is 0 at position 8 and negative at 9.
    total = [sum(math.cos(math.pi / 8 * d) for d in range(p + 1)) for p in (8, 9)]
    assert total == pytest.approx([0, -0.924], abs=5e-4)


def test_pads_may_stand_beyond_the_horizon():
    attention = CosformerAttention(cos_horizon=4)
    mask = torch.tensor([[True] * 4 + [False] * 5])
    out, _ = attention(ones(9), ones(9), ones(9), causal=False, key_mask=mask)
    assert torch.isfinite(out).all()
    with pytest.raises(ValueError, match="outside"):
        attention(ones(9), ones(9), ones(9), causal=False, key_mask=~mask)


def test_negative_positions_are_an_error():
    positions = torch.tensor([[-1, 0, 1]])
    with pytest.raises(ValueError, match="position -1"):
        CosformerAttention()(ones(3), ones(3), ones(3), causal=False, query_positions=positions)


def test_only_differences_of_positions_matter():
    q, k, v = draw(20)
    attention = CosformerAttention(cos_horizon=2000)
    near, _ = attention(q, k, v, causal=True)
    far, _ = attention(q, k, v, causal=True, query_positions=torch.arange(1000, 1020)[None])
    assert relative_error(far, near) <= 1e-12


def test_the_horizon_matters():
    tensors = draw(16)
    narrow, _ = CosformerAttention(cos_horizon=16)(*tensors, causal=False)
    wide, _ = CosformerAttention(cos_horizon=64)(*tensors, causal=False)
    flat, _ = CosformerAttention(cos_horizon=16, cos_reweighting=False)(*tensors, causal=False)
    assert relative_error(wide, narrow) > 0.05
    assert relative_error(flat, narrow) > 0.05


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_horizon_of_each_row_s_real_length(padded, packed):
    tensors = draw(30)
    mask = segments = None
    if padded:
        mask = torch.ones(2, 30, dtype=torch.bool)
        mask[0, :11] = False
    if packed:
        segments = (torch.arange(30) >= 17).long().expand(2, -1)
    out, _ = CosformerAttention(cos_horizon="length")(
        *tensors, causal=False, key_mask=mask, query_segments=segments
    )
    expected = formula(
        *tensors, causal=False, key_mask=mask, segments=segments, cos_horizon="length"
    )
    rows = 1 if mask is None else mask[:, None, :, None]
    assert relative_error(out * rows, expected * rows) <= 1e-12


def test_length_horizon_has_no_causal_form():
    with pytest.raises(ValueError, match="no causal form"):
        CosformerAttention(cos_horizon="length")(*draw(8), causal=True)


def test_elu_feature_map():
    tensors = draw(20)
    out, _ = CosformerAttention(cos_horizon=20, feature_map="elu_plus_one")(*tensors, causal=False)
    p = torch.arange(20.0, dtype=torch.float64)
    phi = [torch.where(x > 0, x + 1, x.exp()) for x in tensors[:2]]
    weights = phi[0] @ phi[1].mT * torch.cos(math.pi / 2 * (p[:, None] - p) / 20)
    assert relative_error(out, weights @ tensors[2] / weights.sum(-1, keepdim=True)) <= 1e-12


@pytest.mark.parametrize("horizon", ["rows", 0, -3, 4.5])
def test_a_wrong_horizon_is_refused(horizon):
    with pytest.raises(ValueError, match="cos_horizon"):
        CosformerAttention(cos_horizon=horizon)


def test_cross_attention_counts_each_side_from_zero():
    q = torch.randn(2, 3, 9, 24, dtype=torch.float64)
    k, v = (torch.randn(2, 3, 21, 24, dtype=torch.float64) for _ in range(2))
    mask = torch.ones(2, 21, dtype=torch.bool)
    mask[1, :6] = False
    out, _ = CosformerAttention(cos_horizon=32)(q, k, v, causal=False, key_mask=mask)
    keys = (mask.long().cumsum(1) - 1).clamp_min(0)
    expected = formula(
        q, k, v, causal=False, key_mask=mask, cos_horizon=32,
        query_positions=torch.arange(9)[None], key_positions=keys,
    )  # fmt: skip
    assert relative_error(out, expected) <= 1e-12


def test_cross_attention_of_equal_lengths_gives_both_positions():
    q, k, v = (torch.randn(2, 3, 9, 24, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[:, :4] = False
    queries, keys = torch.arange(9)[None], (mask.long().cumsum(1) - 1).clamp_min(0)
    tokens = {"key_mask": mask, "query_positions": queries, "key_positions": keys}
    out, _ = CosformerAttention(cos_horizon=16)(q, k, v, causal=False, **tokens)
    fewer, _ = CosformerAttention(cos_horizon=16)(q[:, :, :8], k, v, causal=False, key_mask=mask)
    assert relative_error(out[:, :, :8], fewer) <= 1e-12
    # The keys' pads excuse no query beyond the horizon.
    with pytest.raises(ValueError, match="position 6 is outside"):
        CosformerAttention(cos_horizon=6)(q, k, v, causal=False, **tokens)


@pytest.mark.parametrize("name", ["cosformer", "linear_transformer"])
@pytest.mark.parametrize("rotated", [False, True])
def test_attention_eps_bounds_the_normaliser(name, rotated):
    """An eps above every row sum turns the division into one by a constant."""
    q, k, v = (0.1 * x for x in draw(6))
    sums = {}
    for eps in (1e3, 2e3):
        rotary = RotaryEmbedding(24) if rotated else None
        mechanism = build_attention(name, {"attention_eps": eps}, rotary=rotary)
        sums[eps], _ = mechanism(q, k, v, causal=False)
    assert relative_error(sums[1e3], 2 * sums[2e3]) <= 1e-12


def test_a_row_that_sees_nothing_is_zero_with_a_rotation_too():
    q, k, v = draw(6)
    attention = CosformerAttention(cos_reweighting=False, rotary=RotaryEmbedding(24))
    q[0, 0, 2] = -1
    out, _ = attention(q, k, v, causal=False)
    assert out[0, 0, 2].abs().max() == 0
    assert out[0, 0, 1].abs().max() > 0


def test_a_state_needs_positions():
    attention = CosformerAttention()
    q, k, v = draw(8)
    _, state = attention(q, k, v, causal=True)
    with pytest.raises(ValueError, match="query_positions"):
        attention(q, k, v, causal=True, state=state)
    with pytest.raises(ValueError, match="causal"):
        attention(q, k, v, causal=False, state=state, query_positions=torch.arange(8)[None])
