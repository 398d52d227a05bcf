"""The linear-attention kernels in the interpreter: numerics, layouts, offsets. Labels are reported
cases."""

import math

import pytest
import torch

pytest.importorskip("triton")

from hf_linear_attn.kernels import launching, passes
from hf_linear_attn.kernels.support import why_not
from hf_linear_attn.linear_attention_types import Inputs, Settings
from tests.errors import relative_error
from tests.kernels.calls import Call, check

pytestmark = pytest.mark.kernels

BF16, FP16 = torch.bfloat16, torch.float16

FEATURES = {
    "plain": Call(feature_map="identity", normalize=False, cos=False),
    "relu": Call(),
    "elu, a state": Call(feature_map="elu", normalize=False, cos=False, state=True),
    "elu + 1, mask, state": Call(feature_map="elu_plus_one", cos=False, mask=True, state=True),
    "grouped heads, mask, state": Call(heads=4, mask=True, state=True),
    "two rows, mask": Call(batch=2, heads=1, groups=1, mask=True),
    "states not kept": Call(heads=1, groups=1, state=True, save=False),
    "packed, causal": Call(heads=1, groups=1, packed=True, mask=True),
    "packed, causal, no normaliser": Call(heads=1, groups=1, packed=True, normalize=False),
    "packed": Call(heads=2, groups=1, packed=True, causal=False, mask=True),
    "packed, elu + 1": Call(
        heads=1, groups=1, packed=True, causal=False, cos=False, feature_map="elu_plus_one"
    ),
    "bidirectional": Call(causal=False, mask=True),
    "bidirectional, no normaliser": Call(causal=False, normalize=False, feature_map="elu"),
    "more keys": Call(heads=2, groups=1, causal=False, length=20, keys=90, mask=True),
    "more queries": Call(causal=False, length=90, keys=20, feature_map="elu_plus_one"),
}


@pytest.mark.parametrize("call", FEATURES.values(), ids=FEATURES)
def test_features(call, guarded):
    check(call, guarded)


SPLIT = {
    "causal": Call(length=130, heads=2, groups=1, state=True, mask=True),
    "packed, causal": Call(length=130, heads=1, groups=1, packed=True),
    "packed": Call(length=130, heads=1, groups=1, packed=True, causal=False, mask=True),
    "bidirectional": Call(length=130, heads=1, groups=1, causal=False),
}


@pytest.mark.parametrize("call", SPLIT.values(), ids=SPLIT)
def test_a_scan_cut_along_the_sequence(call, guarded, monkeypatch):
    monkeypatch.setattr(launching, "splits", lambda chunks, programs, device: min(3, chunks))
    check(call, guarded)


@pytest.mark.parametrize("mean", [0, 10])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_16_bits_and_values_with_a_mean(dtype, mean, causal, packed, guarded):
    """The mean cancels in the gradients; rounding must not leave noise in its place."""
    check(
        Call(
            length=100, heads=1, groups=1, dtype=dtype, mean=mean, causal=causal, packed=packed
        ),
        guarded,
    )  # fmt: skip


def test_16_bits_without_angles(guarded):
    check(Call(length=100, dtype=BF16, mean=10, feature_map="elu_plus_one", cos=False), guarded)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 15, 16, 17, 63, 65, 133])
def test_b01_every_length(length, causal, guarded):
    # One token alone has no gradient of its key; a state gives it one.
    state = causal
    feature_map = "relu" if length > 1 else "elu_plus_one"
    normalize = causal or length > 1
    check(
        Call(
            length=length, heads=1, groups=1, D=20, Dv=16, causal=causal, state=state,
            feature_map=feature_map, normalize=normalize,
        ),
        guarded,
    )  # fmt: skip


def test_b01_running_mean_is_exact(guarded):
    zeros = guarded.around(torch.zeros(1, 1, 6, 4))
    v = guarded.around(torch.arange(1.0, 7).view(1, 1, 6, 1))
    x = Inputs(zeros, zeros, v, None, None, None, None, None)
    kept, _ = passes.forward_pass(x, Settings("elu_plus_one", True, True, 64, 1e-6), False)
    assert torch.equal(kept.out.flatten(), torch.tensor([1, 1.5, 2, 2.5, 3, 3.5]))


@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=str)
@pytest.mark.parametrize(
    ("D", "Dv"), [(20, 16), (24, 48), (40, 16), (80, 48), (96, 16), (192, 48), (16, 192)]
)
def test_b02_any_head_size(D, Dv, dtype, guarded):
    check(Call(length=37, heads=1, groups=1, D=D, Dv=Dv, dtype=dtype), guarded)


def test_b05_sums_beyond_the_fp16_range(guarded):
    # Features 301 each: the sum of the keys reaches 90,300, a pair's weight 90,601 · 2.
    q = guarded.around(torch.full((1, 1, 300, 2), 300.0, dtype=FP16))
    v = guarded.around(torch.ones(1, 1, 300, 2, dtype=FP16))
    x = Inputs(q, q, v, None, None, None, None, None)
    settings = Settings("elu_plus_one", True, True, 64, 1e-6)
    kept, final = passes.forward_pass(x, settings, False)
    assert torch.equal(kept.out, torch.ones_like(v))
    assert final[..., 0].min() == 90300
    for grad in passes.backward_pass(x, settings, kept, v, None)[:3]:
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("causal", [True, False])
def test_b06_rows_that_see_nothing(causal, guarded):
    """Negative and zero normalisers give 0 with gradient 0; a tiny one is clamped, a constant."""
    q = torch.randn(1, 1, 40, 8)
    q[:, :, 5] = 0
    q[:, :, 9] *= 1e-9
    k, v = torch.randn(1, 1, 40, 8), torch.randn(1, 1, 40, 8)
    x = Inputs(*[guarded.around(t) for t in (q, k, v)], None, None, None, None, None)
    settings = Settings("identity", causal, True, 64, 1e-6)
    kept, _ = passes.forward_pass(x, settings, True)
    grad = torch.randn(1, 1, 40, 8)
    found = passes.backward_pass(x, settings, kept, grad, None)
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    weights = wide[0] @ wide[1].mT * (torch.ones(40, 40).tril() if causal else torch.ones(40, 40))
    total = weights.sum(-1, keepdim=True)
    assert 0.1 < (total < 0).double().mean() < 0.9
    assert ((total > 0) & (total < 1e-6)).any() or total[0, 0, 9] < 0
    out = torch.where(total > 0, weights @ wide[2] / total.clamp_min(1e-6), 0)
    assert kept.out[0, 0, 5].abs().max() == 0
    assert found[0][0, 0, 5].abs().max() == 0
    assert relative_error(kept.out, out) <= 1e-4
    for a, b in zip(found, torch.autograd.grad(out, wide, grad.double()), strict=False):
        assert relative_error(a, b) <= 1e-4


@pytest.mark.parametrize("causal", [True, False])
def test_not_a_number_at_a_pad_goes_nowhere(causal, guarded):
    x = Call(length=40, heads=1, groups=1, mask=True, causal=causal).inputs()
    settings = Settings("relu", causal, True, 64, 1e-6)
    pads = ~x.key_mask[:, None, :, None]
    grad = torch.randn(1, 1, 40, 24).masked_fill(pads, 0)
    results = []
    for value in (0, math.nan):
        dirty = [guarded.around(t.masked_fill(pads, value)) for t in x[:3]]
        y = Inputs(*dirty, *x[3:])
        kept, _ = passes.forward_pass(y, settings, True)
        grads = passes.backward_pass(y, settings, kept, grad, None)
        results.append((kept.out.masked_fill(pads, 0), *grads[:3]))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def cuts():
    fused = torch.randn(2, 40, 3, 1, 16)  # batch, seq, {q, k, v}, heads, head_dim
    yield [x.transpose(1, 2) for x in fused.unbind(2)]
    yield list(torch.randn(3, 2, 1, 16, 40).mT)
    yield list(torch.randn(3, 2, 1, 1, 16).expand(3, 2, 1, 40, 16))


@pytest.mark.parametrize("which", range(3), ids=["fused", "transposed", "expanded"])
def test_b11_strides_are_honoured(which, guarded):
    views = list(cuts())[which]
    settings = Settings("relu", True, True, 64, 1e-6)
    grad = torch.randn(2, 1, 1, 16).expand(2, 1, 40, 16)
    results = []
    for q, k, v in (views, [x.contiguous() for x in views]):
        x = Inputs(*[guarded.around(t) for t in (q, k, v)], *[None] * 5)
        kept, final = passes.forward_pass(x, settings, True)
        grads = passes.backward_pass(x, settings, kept, guarded.around(grad), None)
        results.append((kept.out, final, *grads[:3]))
        grad = grad.contiguous()
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def sparse(folder, name, elements):
    """A tensor in a file without blocks: only what is written takes memory."""
    return torch.from_file(str(folder / name), shared=True, size=elements, dtype=torch.bfloat16)


@pytest.mark.parametrize("far", ["rows", "heads", "batch"])
def test_b04_offsets_beyond_32_bits(far, tmp_path, guarded, monkeypatch):
    """Views whose elements lie more than 2³¹ apart, without the memory between them."""
    from triton.runtime.interpreter import GridExecutor

    # It would copy whole storages from the host to the host.
    monkeypatch.setattr(GridExecutor, "_restore_args_dev", lambda *_: None)
    B, H, N, D = 2, 2, 70, 16
    strides = {
        "rows": (N * 2**25, 1 << 10, 2**25),
        "heads": (1 << 12, 2**31 + 64, 16),
        "batch": (2**31 + 64, 1 << 12, 16),
    }[far]
    near = [torch.randn(B, H, N, D).bfloat16() for _ in range(4)]
    size = sum((n - 1) * s for n, s in zip((B, H, N), strides, strict=True)) + D
    views = []
    for i, x in enumerate(near):
        view = sparse(tmp_path, f"{i}", size).as_strided((B, H, N, D), (*strides, 1))
        view.copy_(x)
        views.append(view)
    settings = Settings("relu", True, True, 64, 1e-6)
    results = []
    for q, k, v, grad in (views, near):
        x = Inputs(q, k, v, *[None] * 5)
        kept, _ = passes.forward_pass(x, settings, True)
        results.append((kept.out, *passes.backward_pass(x, settings, kept, grad, None)[:3]))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_b44_states_are_a_few_inputs():
    """One state a chunk, however long: F·E numbers for every 32 or 64 tokens."""
    for length in (1024, 2048):
        call = Call(length=length, heads=1, groups=1, D=64, Dv=64)
        shape = passes.states_shape(call.inputs(), call.settings())
        assert math.prod(shape) <= length / 32 * 128 * 65


def test_what_has_no_kernel_is_said():
    x = Call(length=5).inputs()
    assert why_not(x) is None
    refused = {
        "one dtype": x._replace(q=x.q.double(), k=x.k.double(), v=x.v.double()),
        "one dtype of": x._replace(v=x.v.half()),
        "up to 256": x._replace(q=torch.zeros(1, 1, 5, 512), k=torch.zeros(1, 1, 5, 512)),
        "even": x._replace(
            **{n: torch.zeros(1, 1, 5, 7, dtype=BF16) for n in ("q", "k", "v")}
        ),
        "not for the device 'meta'": x._replace(q=x.q.to("meta")),
    }  # fmt: skip
    for words, call in refused.items():
        assert words in why_not(call)
