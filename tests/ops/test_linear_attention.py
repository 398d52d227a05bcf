"""The linear-attention op: numerics, layouts, memory, states. Labels are reported cases."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_linear_attn.ops import linear_attention
from tests import reference
from tests.errors import relative_error

FORMULA = {"elu_plus_one": reference.linear_transformer, "relu": reference.cosformer}


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


def qkv(length, heads=2, dk=8, dv=8, batch=2, dtype=torch.float32):
    return [draw(batch, heads, length, d, dtype=dtype) for d in (dk, dk, dv)]


def angles(length, horizon, dtype=torch.float64):
    return torch.arange(length, dtype=dtype)[None] * (math.pi / 2 / horizon)


def keywords(feature_map, length, horizon):
    if feature_map == "elu_plus_one":
        return {"feature_map": feature_map}
    a = angles(length, horizon)
    return {"feature_map": feature_map, "q_angles": a, "k_angles": a}


def check(tensors, causal, feature_map, tolerance, chunk_size=64):
    length = tensors[0].shape[2]
    horizon = max(16, length)
    out, _ = linear_attention(
        *tensors, causal=causal, chunk_size=chunk_size, **keywords(feature_map, length, horizon)
    )
    wide = [x.detach().double().requires_grad_() for x in tensors]
    expected = FORMULA[feature_map](*wide, causal=causal, max_position_embeddings=horizon)
    assert out.dtype == tensors[2].dtype
    assert relative_error(out, expected) <= tolerance
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, tensors, upstream)
    wanted = torch.autograd.grad(expected, wide, upstream.double())
    scale = upstream.double().norm() if length == 1 else None
    for side, a, b in zip("qkv", found, wanted, strict=True):
        assert relative_error(a, b, scale) <= tolerance, f"gradient of {side}"


@pytest.mark.parametrize("feature_map", list(FORMULA))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk_size", [16, 64])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 15, 16, 17, 63, 65, 133])
def test_b01_every_length_and_chunk(length, chunk_size, causal, feature_map):
    check(qkv(length), causal, feature_map, 1e-5, chunk_size)


@pytest.mark.parametrize("chunk_size", [1, 2, 4, 64])
def test_b01_running_mean_is_exact(chunk_size):
    zeros = torch.zeros(1, 1, 6, 4)
    v = torch.arange(1.0, 7).view(1, 1, 6, 1)
    out, _ = linear_attention(
        zeros, zeros, v, causal=True, feature_map="elu_plus_one", chunk_size=chunk_size
    )
    assert torch.equal(out.flatten(), torch.tensor([1, 1.5, 2, 2.5, 3, 3.5]))


@pytest.mark.parametrize("feature_map", list(FORMULA))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dv", [16, 48])
@pytest.mark.parametrize("dk", [20, 24, 40, 80, 96, 192])
def test_b02_any_head_size(dk, dv, causal, feature_map):
    check(qkv(37, dk=dk, dv=dv), causal, feature_map, 1e-5, chunk_size=16)
    check(qkv(37, dk=dk, dv=dv, dtype=torch.bfloat16), causal, feature_map, 2e-2, chunk_size=16)


@pytest.mark.parametrize("causal", [False, True])
def test_b05_fp16_sums_beyond_the_fp16_range(causal):
    # Feature 3 a token: the key sum reaches 98,304, fp16 ends at 65,504.
    q = torch.full((1, 1, 32768, 1), 2.0, dtype=torch.float16, requires_grad=True)
    v = torch.ones(1, 1, 32768, 1, dtype=torch.float16)
    out, _ = linear_attention(q, q, v, causal=causal, feature_map="elu_plus_one")
    assert out.dtype == torch.float16
    assert torch.equal(out, v)
    assert torch.isfinite(torch.autograd.grad(out.sum(), q)[0]).all()


def test_b05_bf16_decode_counts_past_256():
    zero = torch.zeros(1, 1, 1, 1, dtype=torch.bfloat16)
    state = None
    for step in range(512):
        v = torch.full_like(zero, 1.0 if step < 256 else 0.0)
        out, state = linear_attention(
            zero, zero, v, causal=True, feature_map="elu_plus_one", state=state
        )
    assert out.item() == 0.5
    assert state.dtype == torch.float32


@pytest.mark.parametrize("causal", [False, True])
def test_autocast_does_not_reach_the_sums(causal):
    tensors = qkv(300)
    plain, _ = linear_attention(*tensors, causal=causal, feature_map="elu_plus_one")
    upstream = torch.randn_like(plain)
    wanted = torch.autograd.grad(plain, tensors, upstream)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = linear_attention(*tensors, causal=causal, feature_map="elu_plus_one")
        found = torch.autograd.grad(out, tensors, upstream)
    assert torch.equal(out, plain)
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("causal", [False, True])
def test_b06_zero_normaliser_gives_zero(causal):
    q, k, v = qkv(20)
    k = (-k.detach().abs() - 0.1).requires_grad_()
    out, _ = linear_attention(q, k, v, causal=causal, **keywords("relu", 20, 20))
    assert out.abs().max() == 0
    for grad in torch.autograd.grad(out.sum(), (q, k, v)):
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("causal", [False, True])
def test_b06_one_zero_query_leaves_the_others(causal):
    q, k, v = qkv(20)
    before, _ = linear_attention(q, k, v, causal=causal, **keywords("relu", 20, 20))
    q = q.detach().clone()
    q[0, 0, 7] = -1
    q.requires_grad_()
    out, _ = linear_attention(q, k, v, causal=causal, **keywords("relu", 20, 20))
    others = torch.ones(2, 2, 20, dtype=torch.bool)
    others[0, 0, 7] = False
    assert out[0, 0, 7].abs().max() == 0
    assert relative_error(out[others], before[others]) <= 1e-6
    for grad in torch.autograd.grad(out.sum(), (q, k, v)):
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("causal", [False, True])
def test_b06_features_that_do_not_meet_have_no_gradient(causal):
    # φ(q) = (1, 0), φ(k) = (0, 1): the normaliser is 0 although no feature vector is.
    q = torch.tensor([1.0, -1]).expand(1, 1, 4, 2).clone().requires_grad_()
    k = torch.tensor([-1.0, 1]).expand(1, 1, 4, 2).clone().requires_grad_()
    v = draw(1, 1, 4, 3)
    out, _ = linear_attention(q, k, v, causal=causal, feature_map="relu")
    assert out.abs().max() == 0
    for grad in torch.autograd.grad(out.sum(), (q, k, v)):
        assert grad.abs().max() == 0


@pytest.mark.parametrize("causal", [False, True])
def test_a_negative_normaliser_gives_zero(causal):
    """Features of the caller's own may have any sign."""
    q, k, v = qkv(12, dtype=torch.float64)
    out, _ = linear_attention(q, k, v, causal=causal)
    pairs = torch.ones(12, 12).tril() if causal else torch.ones(12, 12)
    weights = q @ k.mT * pairs
    total = weights.sum(-1, keepdim=True)
    assert 0.1 < (total < 0).double().mean() < 0.9
    expected = torch.where(total > 0, weights @ v / total.clamp_min(1e-6), 0)
    assert relative_error(out, expected) <= 1e-12
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), upstream)
    for a, b in zip(found, torch.autograd.grad(expected, (q, k, v), upstream), strict=True):
        assert relative_error(a, b) <= 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_b06_the_guard_leaves_ordinary_rows_alone(causal):
    q, k, v = qkv(50, dtype=torch.float64)
    a = angles(50, 50)
    guarded, _ = linear_attention(q, k, v, causal=causal, **keywords("relu", 50, 50))
    pairs = torch.ones(50, 50).tril() if causal else torch.ones(50, 50)
    weights = torch.relu(q) @ torch.relu(k).mT * torch.cos(a.mT - a) * pairs
    total = weights.sum(-1, keepdim=True)
    ordinary = (total > 1e-3).squeeze(-1)
    assert ordinary.float().mean() > 0.9
    plain = weights @ v / total
    assert relative_error(guarded[ordinary], plain[ordinary]) <= 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_tiny_normaliser_is_clamped_and_its_gradient_is_the_formula_s(causal):
    q, k, v = qkv(9, dtype=torch.float64)
    q = (q.detach() * 1e-8).requires_grad_()
    out, _ = linear_attention(q, k, v, causal=causal, feature_map="relu", eps=1e-6)
    pairs = torch.ones(9, 9).tril() if causal else torch.ones(9, 9)
    weights = torch.relu(q) @ torch.relu(k).mT * pairs
    expected = weights @ v / weights.sum(-1, keepdim=True).clamp_min(1e-6)
    assert relative_error(out, expected) <= 1e-12
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), upstream)
    for a, b in zip(found, torch.autograd.grad(expected, (q, k, v), upstream), strict=True):
        assert relative_error(a, b) <= 1e-12


def views():
    fused = draw(2, 24, 3, 3, 8)  # batch, seq, {q, k, v}, heads, head_dim
    yield "fused", fused, lambda x: [y.transpose(1, 2) for y in x.unbind(2)]
    stacked = draw(3, 2, 24, 3, 8)
    yield "transposed", stacked, lambda x: list(x.transpose(2, 3))
    row = draw(3, 2, 3, 1, 8)
    yield "expanded", row, lambda x: list(x.expand(3, 2, 3, 24, 8))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["fused", "transposed", "expanded"])
def test_b11_strides_are_honoured(which, causal):
    _, base, cut = list(views())[which]
    upstream = torch.randn(2, 3, 1, 8).expand(2, 3, 24, 8)
    kw = {"causal": causal, "chunk_size": 8, **keywords("relu", 24, 24)}
    out, _ = linear_attention(*cut(base), **kw)
    plain, _ = linear_attention(*(x.contiguous() for x in cut(base)), **kw)
    assert torch.equal(out, plain)
    found = torch.autograd.grad(out, base, upstream)[0]
    wanted = torch.autograd.grad(plain, base, upstream.contiguous())[0]
    assert relative_error(found, wanted) <= 1e-6


def test_b12_pads_stay_out_of_the_normaliser():
    zeros = torch.zeros(1, 1, 5, 2)
    v = torch.tensor([3.0, 6, 9, 0, 0]).view(1, 1, 5, 1)
    mask = torch.tensor([[True, True, True, False, False]])
    out, _ = linear_attention(
        zeros, zeros, v, causal=False, feature_map="elu_plus_one", key_mask=mask
    )
    assert torch.equal(out.flatten(), torch.full((5,), 6.0))


@pytest.mark.parametrize("causal", [False, True])
def test_not_a_number_at_a_pad_goes_nowhere(causal):
    q, k, v = qkv(12)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[:, 9:] = False
    kw = {"causal": causal, "key_mask": mask, **keywords("relu", 12, 12)}
    out, _ = linear_attention(q, k, v, **kw)
    k, v = (x.detach().masked_fill(~mask[:, None, :, None], math.nan) for x in (k, v))
    dirty, _ = linear_attention(q, k.requires_grad_(), v.requires_grad_(), **kw)
    assert torch.equal(dirty, out)
    for grad in torch.autograd.grad(dirty.sum(), (k, v)):
        assert torch.isfinite(grad).all()


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor any operator makes."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.numel())
        return out


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_b44_memory_is_linear_in_length(causal, recompute, packed):
    largest = {}
    for length in (1024, 2048):
        tensors = qkv(length, heads=1, dk=64, dv=64, batch=1)
        segments = torch.arange(length)[None] // 3 if packed else None
        with LargestTensor() as record:
            out, _ = linear_attention(
                *tensors, causal=causal, recompute_states=recompute, segments=segments,
                **keywords("relu", length, length),
            )  # fmt: skip
            out.sum().backward()
        largest[length] = record.elements
        assert record.elements < length * 64 * 128 / 8
    assert largest[2048] <= 2.1 * largest[1024]


def test_b44_at_the_size_of_a_real_layer():
    """12 heads of 64 over 4,096 tokens in fp32: a state for every token would be 1,536 MiB."""
    tensors = qkv(4096, heads=12, dk=64, dv=64, batch=1)
    with LargestTensor() as record:
        out, state = linear_attention(*tensors, causal=True, **keywords("relu", 4096, 4096))
        out.sum().backward()
    assert 4096 * 12 * 128 * 64 * 4 == 1536 * 2**20
    assert record.elements * 4 <= 1536 * 2**20 / 16
    assert state[..., :64].numel() * state.element_size() == 384 * 2**10


def test_tokens_beyond_65536_are_attended_to():
    """q = k = 0: each row is the mean of what it sees, in closed form."""
    length = 65_536 + 130
    v = torch.zeros(1, 1, length, 1)
    # Half of what counts lies behind 2¹⁶, down to the very last token.
    v[0, 0, [0, 100, length - 70, length - 1]] = torch.tensor([[1.0], [3], [4], [8]])
    v.requires_grad_()
    zeros = torch.zeros(1, 1, length, 2)
    seen = torch.arange(1, length + 1, dtype=torch.float64)
    for causal in (True, False):
        out, _ = linear_attention(zeros, zeros, v, causal=causal, feature_map="elu_plus_one")
        sums = v.detach().double().flatten().cumsum(0)
        expected = sums / seen if causal else (sums[-1] / length).expand(length)
        assert relative_error(out.flatten(), expected) <= 1e-6
        assert relative_error(out.flatten()[65_536:], expected[65_536:]) <= 1e-6
        upstream = torch.zeros_like(out)
        upstream[0, 0, -1] = 1
        (grad,) = torch.autograd.grad(out, v, upstream)
        assert relative_error(grad.flatten(), torch.full((length,), 1 / length)) <= 1e-6


@pytest.mark.parametrize("recompute", [False, True])
def test_b44_what_is_kept_for_backward_is_a_few_inputs(recompute):
    tensors = qkv(2048, heads=2, dk=64, dv=64, batch=1)
    kept = {}

    def pack(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out, _ = linear_attention(
            *tensors, causal=True, recompute_states=recompute, **keywords("relu", 2048, 2048)
        )
    known = {x.untyped_storage().data_ptr() for x in (*tensors, out)}
    unit = out.untyped_storage().nbytes()
    extra = sum(size for address, size in kept.items() if address not in known) / unit
    assert extra <= (0.1 if recompute else 2.2)


def test_gradients_of_a_carried_state():
    q, k, v = qkv(11, dtype=torch.float64, batch=1)
    state = torch.rand(1, 2, 16, 9, dtype=torch.float64).requires_grad_()
    a = angles(11, 40)

    def run(q, k, v, state):
        return linear_attention(
            q, k, v, causal=True, feature_map="relu", q_angles=a, k_angles=a, state=state,
            chunk_size=4,
        )  # fmt: skip

    assert torch.autograd.gradcheck(run, (q, k, v, state))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-3)]
)
def test_gradients_go_back_through_a_carried_state(dtype, tolerance):
    """What is asked of the second part reaches the first one through the state alone."""
    tensors = qkv(24, dtype=dtype)
    wide = [x.detach().double().requires_grad_() for x in tensors]

    def run(tensors, part, state=None):
        q, k, v = (x[:, :, part] for x in tensors)
        a = angles(24, 40)[:, part]
        return linear_attention(
            q, k, v, causal=True, feature_map="relu", q_angles=a, k_angles=a, state=state,
            chunk_size=4,
        )  # fmt: skip

    _, state = run(tensors, slice(0, 11))
    second = run(tensors, slice(11, 24), state)
    out, final = run(wide, slice(0, 24))
    for found, wanted in zip(second, (out[:, :, 11:], final), strict=True):
        upstream = torch.randn_like(found)
        grads = torch.autograd.grad(found, tensors[1:], upstream, retain_graph=True)
        expected = torch.autograd.grad(wanted, wide[1:], upstream.double(), retain_graph=True)
        for a, b in zip(grads, expected, strict=True):
            assert b[:, :, :11].norm() > 1
            assert relative_error(a[:, :, :11], b[:, :, :11]) <= tolerance


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_without_normaliser(causal, packed):
    q, k, v = qkv(40, dtype=torch.float64)
    segments = torch.arange(40).expand(2, -1) // 7 if packed else None
    out, state = linear_attention(
        q, k, v, causal=causal, normalize=False, feature_map="relu", segments=segments, chunk_size=8
    )
    pairs = reference.allowed_pairs(40, 40, segments=segments, causal=causal)
    expected = (torch.relu(q) @ torch.relu(k).mT * pairs) @ v
    assert relative_error(out, expected) <= 1e-12
    upstream = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), upstream)
    for a, b in zip(found, torch.autograd.grad(expected, (q, k, v), upstream), strict=True):
        assert relative_error(a, b) <= 1e-12
    if causal:
        assert state.shape == (2, 2, 8, 8)


def test_recomputed_states_give_the_same_gradients():
    tensors = qkv(100)
    state = torch.rand(2, 2, 16, 9)
    grads = []
    for recompute in (False, True):
        out, _ = linear_attention(
            *tensors, causal=True, state=state, recompute_states=recompute, chunk_size=16,
            **keywords("relu", 100, 200),
        )  # fmt: skip
        grads.append(torch.autograd.grad(out.square().sum(), tensors))
    for a, b in zip(*grads, strict=True):
        assert torch.equal(a, b)


def test_features_of_very_negative_inputs_do_not_vanish():
    # exp(-17) is far inside fp32; expm1(x) + 1 is exactly 0 there.
    q = torch.full((1, 1, 2, 1), -30.0)
    v = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1)
    out, _ = linear_attention(q, q, v, causal=False, feature_map="elu_plus_one", eps=1e-30)
    assert torch.allclose(out, torch.full_like(out, 2.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_map": "softplus"}, "feature_map"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"q_angles": torch.zeros(1, 6)}, "go together"),
        ({"key_mask": torch.ones(2, 6)}, "key_mask"),
        ({"segments": torch.zeros(2, 5, dtype=torch.long)}, "segments"),
        ({"state": torch.zeros(2, 2, 8, 8)}, "state"),
        ({"state": torch.zeros(2, 2, 8, 9), "causal": False}, "state"),
        ({"backend": "cuda"}, "backend"),
        ({"backend": "triton"}, "triton"),
    ],
)
def test_what_cannot_be_honoured_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        linear_attention(*qkv(6), **{"causal": True, **change})


def test_shapes_that_do_not_fit_are_refused():
    q, k, v = qkv(6)
    for bad in ((q[0], k, v), (q, k[:, :, :, :4], v), (q, k, v[:, :, :5]), (q[:, :1], k, v)):
        with pytest.raises(ValueError, match="must"):
            linear_attention(*bad, causal=False)
    with pytest.raises(ValueError, match="as many queries as keys"):
        linear_attention(q[:, :, :3], k, v, causal=True)
