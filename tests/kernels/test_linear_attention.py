"""The linear-attention kernels in the interpreter: numerics, layouts, offsets. Labels are reported
cases."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from hf_linear_attn.kernels import launching, passes
from hf_linear_attn.kernels.configurations import CHUNKED, TABLE, target_of
from hf_linear_attn.kernels.support import why_not
from hf_linear_attn.linear_attention_types import Inputs, Settings
from tests.errors import relative_error
from tests.kernels import far_apart, guards
from tests.kernels.calls import Call, check

pytestmark = pytest.mark.kernels

BF16, FP16 = torch.bfloat16, torch.float16

FEATURES = {
    "plain": Call(feature_map="identity", normalize=False, cos=False),
    "relu": Call(),
    "elu, a state": Call(feature_map="elu", normalize=False, cos=False, state=True),
    "elu + 1, mask, state": Call(feature_map="elu_plus_one", cos=False, mask=True, state=True),
    "grouped heads, mask, state": Call(length=40, heads=4, mask=True, state=True),
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
    "causal": (Call(length=130, heads=1, groups=1, state=True, mask=True), 3),
    "grouped heads": (Call(length=40, heads=2, groups=1, state=True, mask=True), 2),
    "packed, causal": (Call(length=130, heads=1, groups=1, packed=True), 3),
    "packed": (Call(length=70, heads=1, groups=1, packed=True, causal=False, mask=True), 2),
    "bidirectional": (Call(length=130, heads=1, groups=1, causal=False), 3),
}


@pytest.mark.parametrize(("call", "parts"), SPLIT.values(), ids=SPLIT)
def test_a_scan_cut_along_the_sequence(call, parts, guarded, monkeypatch):
    monkeypatch.setattr(launching, "splits", lambda chunks, programs, device: min(parts, chunks))
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
    # A GPU divides within two units in the last place.
    assert relative_error(kept.out.flatten(), torch.tensor([1, 1.5, 2, 2.5, 3, 3.5])) <= 2e-7


@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=str)
@pytest.mark.parametrize(("D", "Dv"), [(20, 16), (24, 48), (40, 16), (80, 48), (96, 16), (16, 192)])
def test_b02_any_head_size(D, Dv, dtype, guarded):
    check(Call(length=20, heads=1, groups=1, D=D, Dv=Dv, dtype=dtype, state=True), guarded)


@pytest.mark.parametrize("dtype", [torch.float32, BF16], ids=str)
def test_b02_a_large_head_size_in_wide_tiles(dtype, guarded, monkeypatch):
    """In the table's tiles these are more programs than the interpreter has time for."""
    target = target_of(torch.empty(0).device)
    for kernel in CHUNKED:
        key = kernel, dtype, 256, target
        wide = TABLE[key][0]._replace(features=128, columns=32)
        monkeypatch.setitem(TABLE, key, (wide,))
    check(Call(length=20, heads=1, groups=1, D=192, Dv=48, dtype=dtype, state=True), guarded)


@pytest.mark.parametrize("causal", [True, False])
def test_b05_sums_beyond_the_fp16_range(causal, guarded):
    # Features 601 each: the sum of the keys reaches 76,928, a pair's weight 361,201 · 2.
    q = guarded.around(torch.full((1, 1, 128, 2), 600.0, dtype=FP16))
    v = guarded.around(torch.ones(1, 1, 128, 2, dtype=FP16))
    x = Inputs(q, q, v, None, None, None, None, None)
    settings = Settings("elu_plus_one", causal, True, 64, 1e-6)
    kept, final = passes.forward_pass(x, settings, False)
    assert kept.out.dtype == FP16
    assert torch.equal(kept.out, torch.ones_like(v))
    if causal:
        assert final[..., 0].min() == 76_928
    for grad in passes.backward_pass(x, settings, kept, v, None)[:3]:
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("causal", [True, False])
def test_b06_rows_that_see_nothing(causal, guarded):
    """Negative and zero normalisers give 0 with gradient 0; a tiny one is clamped, a constant."""
    q = torch.randn(1, 1, 40, 8)
    q[:, :, 5] = 0
    k, v = torch.randn(1, 1, 40, 8), torch.randn(1, 1, 40, 8)
    # Its normaliser is above 0, and below eps.
    q[:, :, 9] = 1e-9 * (k[:, :, :10] if causal else k).sum(2)
    x = Inputs(*[guarded.around(t) for t in (q, k, v)], None, None, None, None, None)
    settings = Settings("identity", causal, True, 64, 1e-6)
    kept, _ = passes.forward_pass(x, settings, True)
    grad = torch.randn(1, 1, 40, 8)
    found = passes.backward_pass(x, settings, kept, grad, None)
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    weights = wide[0] @ wide[1].mT * (torch.ones(40, 40).tril() if causal else torch.ones(40, 40))
    total = weights.sum(-1, keepdim=True)
    assert 0.1 < (total < 0).double().mean() < 0.9
    assert 0 < total[0, 0, 9] < 1e-6
    out = torch.where(total > 0, weights @ wide[2] / total.clamp_min(1e-6), 0)
    assert kept.out[0, 0, 5].abs().max() == 0
    assert found[0][0, 0, 5].abs().max() == 0
    assert relative_error(kept.out, out) <= 1e-4
    wanted = torch.autograd.grad(out, wide, grad.double())
    assert relative_error(found[0][:, :, 9], wanted[0][:, :, 9]) <= 1e-4
    for a, b in zip(found, wanted, strict=False):
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


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("which", range(3), ids=["fused", "transposed", "expanded"])
def test_b11_strides_are_honoured(which, causal, guarded):
    views = list(cuts())[which]
    call = Call(length=40, batch=2, heads=1, groups=1, D=16, Dv=16, causal=causal, cos=False)
    grad = torch.randn(2, 1, 1, 16).expand(2, 1, 40, 16)
    # Expanded keys: normalised, every row is the mean of one value and no gradient is left.
    call = replace(call, normalize=which < 2)
    check(call, guarded, clean=Inputs(*views, *[None] * 5), grad=grad)


FAR = {
    "rows": (Call(heads=1, groups=1), (70 * 2**25, 0, 2**25)),
    "rows of a later chunk": (
        Call(length=130, heads=1, groups=1),
        (130 * 2**25, 0, 2**25 - 16),
    ),
    "a chunk that spans too much": (Call(heads=1, groups=1), (70 * 2**26, 0, 2**26)),
    "heads": (Call(length=20), (1 << 12, 2**31 + 64, 16)),
    "batch": (Call(length=20, batch=2, heads=1, groups=1), (2**31 + 64, 1 << 12, 16)),
}


@pytest.mark.parametrize(("call", "strides"), FAR.values(), ids=FAR)
def test_b04_offsets_beyond_32_bits(call, strides, tmp_path, guarded, monkeypatch):
    """Views whose elements lie more than 2³¹ apart, without the memory between them."""
    far_apart.prepare(monkeypatch)
    call = replace(call, Dv=16, dtype=BF16, cos=False)
    near = call.inputs()
    grad = torch.randn(near.q.shape).bfloat16()
    views = [
        far_apart.spread(x, (*strides, 1), tmp_path, str(i))
        for i, x in enumerate((*near[:3], grad))
    ]
    given = Inputs(*views[:3], *[None] * 5)
    check(call, guarded, clean=near, given=given, grad=views[3])


@pytest.mark.parametrize("causal", [True, False])
def test_b44_nothing_holds_a_state_for_every_token(causal, guarded):
    """What a call makes grows with its length, and holds a state for every 32 tokens at the most.

    One head of 8: what is made beside the states is small then.
    """
    largest = {}
    for length in (64, 128):
        call = Call(length=length, heads=1, groups=1, D=8, Dv=8, causal=causal)
        x, before = call.inputs(), len(guarded.buffers)
        kept, _ = passes.forward_pass(x, call.settings(), True)
        passes.backward_pass(x, call.settings(), kept, torch.ones_like(x.v), None)
        made = guarded.buffers[before:]
        largest[length] = max(x.numel() - 2 * guards.MARGIN for x in made)
    assert largest[128] <= 2.1 * largest[64]
    assert largest[128] <= max(128 * 8, 128 // 32 * 16 * 9)


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
