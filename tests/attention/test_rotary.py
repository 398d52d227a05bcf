"""Rotations, alone and with the mechanisms."""

import pytest
import torch

from hf_linear_attn.attention import build_attention
from hf_linear_attn.attention.rotary import LRPE, RotaryEmbedding
from tests.errors import relative_error
from tests.reference import allowed_pairs, nystrom, srmsnorm


def draw(length=20, d=16):
    return [torch.randn(2, 3, length, d, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def rotation(p, d, theta=10000.0):
    """R(p) as an explicit matrix for row vectors' transposes, half-split pairs."""
    r = torch.zeros(d, d, dtype=torch.float64)
    for t in range(d // 2):
        a = torch.tensor(p * theta ** (-2 * t / d), dtype=torch.float64)
        r[t, t], r[t, t + d // 2] = a.cos(), -a.sin()
        r[t + d // 2, t], r[t + d // 2, t + d // 2] = a.sin(), a.cos()
    return r


def test_rope_is_a_rotation_of_half_split_pairs():
    x = torch.randn(1, 1, 5, 8, dtype=torch.float64)
    found = RotaryEmbedding(8)(x, torch.tensor([[0, 3, 4, 100, 7]]))
    for i, p in enumerate((0, 3, 4, 100, 7)):
        assert torch.allclose(found[0, 0, i], rotation(p, 8) @ x[0, 0, i], atol=1e-12)


def test_rope_equals_transformers():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=32, num_attention_heads=2, head_dim=16)
    q, k = torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
    positions = torch.arange(3, 12)[None]
    cos, sin = LlamaRotaryEmbedding(config)(q, positions)
    wanted, _ = apply_rotary_pos_emb(q, k, cos, sin)
    assert torch.allclose(RotaryEmbedding(16)(q, positions), wanted, atol=1e-5)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    ],
    ids=lambda rope: rope["rope_type"],
)  # fmt: skip
def test_extended_frequencies_equal_transformers(rope):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=128, num_attention_heads=2, head_dim=64, rope_parameters=rope)
    q = torch.randn(1, 2, 5, 64)
    positions = torch.tensor([[0, 1, 100, 5000, 30000]])
    wanted, _ = apply_rotary_pos_emb(q, q, *LlamaRotaryEmbedding(config)(q, positions))
    found = RotaryEmbedding(64, rope["rope_theta"], rope)(q, positions)
    # At position 30,000 an angle of 32 bits is exact to 2e-3.
    assert torch.allclose(found, wanted, atol=1e-2)
    assert torch.allclose(found[:, :, :3], wanted[:, :, :3], atol=1e-4)
    assert not torch.allclose(RotaryEmbedding(64, rope["rope_theta"])(q, positions), wanted,
                              atol=0.1)  # fmt: skip


def test_lrpe_begins_as_rope_behind_a_reflection():
    lrpe = LRPE(8)
    x = torch.randn(1, 1, 5, 8)
    u = lrpe.reflection
    assert u.norm().item() == pytest.approx(1)
    reflected = x - 2 * (x @ u)[..., None] * u
    positions = torch.arange(5)[None]
    assert torch.allclose(lrpe(x, positions), RotaryEmbedding(8)(reflected, positions), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("linear_transformer", {}),
        ("cosformer", {"cos_reweighting": False}),
        ("cosformer", {"cos_horizon": 20}),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_linear_attention_rotates_behind_the_map_and_in_the_numerator_only(
    name, fields, causal, packed
):
    q, k, v = tensors = draw()
    rotary = RotaryEmbedding(16)
    mechanism = build_attention(name, fields, rotary=rotary)
    segments = (torch.arange(20) >= 8).long().expand(2, -1) if packed else None
    out, _ = mechanism(q, k, v, causal=causal, query_segments=segments)

    def phi(x):
        return torch.relu(x) if name == "cosformer" else torch.where(x > 0, x + 1, x.exp())

    positions = torch.arange(20) - (8 * (segments[0] if packed else 0))
    pairs = allowed_pairs(20, 20, segments=segments, causal=causal)
    if "cos_horizon" in fields:
        distance = (positions[:, None] - positions[None, :]).double()
        pairs = pairs * torch.cos(torch.pi / 2 * distance / 20)
    matrices = torch.stack([rotation(p, 16) for p in positions.tolist()])
    turned = [torch.einsum("nij,bhnj->bhni", matrices, phi(x)) for x in (q, k)]
    top = (turned[0] @ turned[1].mT * pairs) @ v
    low = (phi(q) @ phi(k).mT * pairs).sum(-1, keepdim=True)
    expected = torch.where(low > 0, top / low.clamp_min(1e-6), 0)
    assert relative_error(out, expected) <= 1e-12
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, tensors, upstream)
    for a, b in zip(found, torch.autograd.grad(expected, tensors, upstream), strict=True):
        assert relative_error(a, b) <= 1e-12


@pytest.mark.parametrize("name", ["linear_transformer", "cosformer"])
def test_a_split_with_rotations_equals_the_whole(name):
    tensors = draw(33)
    mechanism = build_attention(name, {}, rotary=RotaryEmbedding(16))
    whole, final = mechanism(*tensors, causal=True)
    state, parts = None, []
    for start, stop in ((0, 16), (16, 17), (17, 33)):
        piece = [x[:, :, start:stop] for x in tensors]
        positions = torch.arange(start, stop)[None]
        part, state = mechanism(*piece, causal=True, query_positions=positions, state=state)
        parts.append(part)
    assert relative_error(torch.cat(parts, 2), whole) <= 1e-12
    assert relative_error(state, final) <= 1e-12


def turned(x, positions, u=None):
    """Rotated by the explicit matrices, behind a reflection where there is one."""
    if u is not None:
        x = x - 2 * (x @ u)[..., None] * u
    matrices = torch.stack([rotation(p, x.shape[-1]) for p in positions])
    return torch.einsum("nij,bhnj->bhni", matrices, x)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("version", ["t1", "t2"])
@pytest.mark.parametrize("kind", [RotaryEmbedding, LRPE])
def test_norm_attention_rotates_behind_the_map(kind, version, causal):
    q, k, v = tensors = draw()
    rotary = kind(16).double()
    fields = {"transnormer_version": version}
    out, _ = build_attention("transnormer_norm", fields, rotary=rotary)(*tensors, causal=causal)
    phi = [torch.where(x > 0, x, x.exp() - 1) + (version == "t2") for x in (q, k)]
    u = getattr(rotary, "reflection", None)
    sides = [turned(x, range(20), u) for x in phi]
    expected = srmsnorm((sides[0] @ sides[1].mT * allowed_pairs(20, 20, causal=causal)) @ v)
    # LRPE's frequencies are fp32 powers, the formula's fp64 ones.
    tolerance = 1e-12 if u is None else 1e-5
    assert relative_error(out, expected) <= tolerance


@pytest.mark.parametrize("kind", [RotaryEmbedding, LRPE])
def test_block_attention_rotates_by_the_place_in_the_block(kind):
    q, k, v = tensors = draw()
    rotary = kind(16).double()
    out, _ = build_attention("transnormer_diag", {"block_size": 6}, rotary=rotary)(
        *tensors, causal=False
    )
    u = getattr(rotary, "reflection", None)
    places = [i % 6 for i in range(20)]
    scores = turned(q, places, u) @ turned(k, places, u).mT / 4
    block = torch.arange(20) // 6
    scores = scores.masked_fill(block[:, None] != block, -torch.inf)
    tolerance = 1e-12 if u is None else 1e-5
    assert relative_error(out, scores.softmax(-1) @ v) <= tolerance


def test_nystrom_rotates_before_the_landmarks():
    tensors = draw()
    rotary = RotaryEmbedding(16)
    out, _ = build_attention("nystrom", {"num_landmarks": 5}, rotary=rotary)(*tensors, causal=False)
    q, k, v = tensors
    expected = nystrom(turned(q, range(20)), turned(k, range(20)), v, causal=False, num_landmarks=5)
    assert relative_error(out, expected) <= 1e-11


def test_softmax_rotates_queries_and_keys():
    q, k, v = draw()
    rotary = RotaryEmbedding(16)
    out, _ = build_attention("softmax", {}, rotary=rotary)(q, k, v, causal=False)
    p = torch.arange(20)[None]
    weights = torch.softmax(rotary(q, p) @ rotary(k, p).mT / 4, dim=-1)
    assert relative_error(out, weights @ v) <= 1e-12


def test_lrpe_stays_out_of_16_bits():
    """At position 500 an angle from a bf16 frequency is off by whole radians."""
    lrpe = LRPE(16)
    torch.nn.init.uniform_(lrpe.theta, 0.1, 1)
    x, positions = torch.randn(1, 2, 50, 16), torch.arange(450, 500)[None]
    wanted = lrpe(x, positions)
    half = lrpe.to(torch.bfloat16)
    assert {half.theta.dtype, half.reflection.dtype} == {torch.float32}
    assert half.double().theta.dtype == torch.float64
    assert relative_error(half.float()(x.bfloat16(), positions), wanted) <= 1e-2
    with torch.autocast("cpu", torch.bfloat16):
        assert relative_error(lrpe(x, positions), wanted) <= 1e-6


def test_lrpe_of_a_model_that_is_built_in_16_bits():
    """As `AutoModel.from_config(config, dtype=…)` builds it: in another default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        lrpe = LRPE(16)
    finally:
        torch.set_default_dtype(before)
    assert {x.dtype for x in lrpe.state_dict().values()} == {torch.float32}
    assert abs(lrpe.reflection.norm() - 1) <= 1e-6


def test_an_odd_head_size_cannot_be_rotated():
    with pytest.raises(ValueError, match="even head_dim"):
        RotaryEmbedding(7)
    for wrong in ({"rope_type": "yarn"}, {"rope_type": "linear"}, {"factor": 2.0}):
        with pytest.raises(ValueError, match="accepted"):
            RotaryEmbedding(8, scaling=wrong)
