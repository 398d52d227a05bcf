"""The promise of `Attention`, for every mechanism of the registry.

A new mechanism with a formula in `tests/reference.py` is picked up without an edit here.
"""

import itertools

import pytest
import torch

from hf_linear_attn.attention import ATTENTION, build_attention
from hf_linear_attn.attention.registry import attention_fields
from tests.errors import relative_error
from tests.reference import REFERENCES, real_positions

LENGTHS = [1, 7, 63, 65, 130]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-2}
# Batch 2, 6 query heads on 3 key heads: rows, heads and groups can all be mixed up.
BATCH, HEADS, GROUPS = 2, 6, 3


def build(name, positions):
    """The mechanism with a horizon (or table) of exactly `positions`, and small chunks."""
    fields = {"max_position_embeddings": positions, "chunk_size": 16}
    return build_attention(name, {k: v for k, v in fields.items() if k in attention_fields(name)})


def inputs(length, dtype=torch.float64, head_dim=24, value_dim=16):
    shapes = ((HEADS, head_dim), (GROUPS, head_dim), (GROUPS, value_dim))
    return [torch.randn(BATCH, h, length, d).to(dtype).requires_grad_() for h, d in shapes]


def reference(name, tensors, causal, positions, **tokens):
    tensors = [x.detach().double().requires_grad_() for x in tensors]
    out = REFERENCES[name](*tensors, causal=causal, max_position_embeddings=positions, **tokens)
    return tensors, out


def padding(length, side):
    """Rows of different real length, padded on one side; one row is full."""
    mask = torch.ones(BATCH, length, dtype=torch.bool)
    pads = length // 3
    if side == "right":
        mask[0, length - pads :] = False
    else:
        mask[0, :pads] = False
    return mask


def packing(length):
    """Documents of uneven length, one of them a single token, ids not in order."""
    rows = torch.zeros(BATCH, length, dtype=torch.long)
    rows[0, length // 4 :] = 7
    rows[0, length // 4 + 1 :] = 3
    rows[1, length // 2 :] = 1
    return rows


CAUSAL = {
    n: mechanism.cache_kind for n, mechanism in ATTENTION.items() if mechanism.supports_causal
}
FORMS = [(n, False) for n in ATTENTION] + [(n, True) for n in CAUSAL]


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0]}-{'causal' if form[1] else 'both'}")
def form(request):
    return request.param


@pytest.fixture
def name(form):
    return form[0]


@pytest.fixture
def causal(form):
    return form[1]


@pytest.fixture(params=list(CAUSAL))
def causal_name(request):
    return request.param


def check_parity(name, causal, tensors, dtype, positions, real=None, **tokens):
    """Forward and all gradients against the reference on the same rounded inputs."""
    out, _ = build(name, positions)(*tensors, causal=causal, **tokens)
    wide, expected = reference(name, tensors, causal, positions, **tokens)
    assert out.dtype == dtype
    upstream = torch.randn_like(out)
    if real is not None:
        # What a pad's own output is does not matter.
        rows = real[:, None, :, None]
        out, expected, upstream = out * rows, expected * rows, upstream * rows
    assert relative_error(out, expected) <= TOLERANCE[dtype]
    found = torch.autograd.grad(out, tensors, upstream)
    wanted = torch.autograd.grad(expected, wide, upstream.double())
    # A lone token's output is its value: the gradients of q and k are exactly 0.
    scale = upstream.double().norm() if out.shape[2] == 1 else None
    for side, a, b in zip("qkv", found, wanted, strict=True):
        assert relative_error(a, b, scale) <= TOLERANCE[dtype], f"gradient of {side}"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_parity_with_the_reference(name, causal, length, dtype):
    check_parity(name, causal, inputs(length, dtype), dtype, positions=max(length, 16))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_parity_at_a_head_size_of_80(name, causal, length, dtype):
    tensors = inputs(length, dtype, head_dim=80, value_dim=80)
    check_parity(name, causal, tensors, dtype, positions=max(length, 16))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", LENGTHS[1:])
def test_parity_with_padding(name, causal, length, side):
    mask = padding(length, side)
    tensors = inputs(length)
    check_parity(name, causal, tensors, torch.float64, length, real=mask, key_mask=mask)


@pytest.mark.parametrize("length", LENGTHS[1:])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_parity_with_packed_documents(name, causal, length, padded):
    mask, segments = (padding(length, "left") if padded else None), packing(length)
    tokens = {"segments": segments, "key_mask": mask}
    tensors = inputs(length)
    out, _ = build(name, length)(
        *tensors, causal=causal, key_mask=mask, query_segments=segments
    )  # fmt: skip
    wide, expected = reference(name, tensors, causal, length, **tokens)
    rows = 1 if mask is None else mask[:, None, :, None]
    upstream = torch.randn_like(out) * rows
    assert relative_error(out * rows, expected * rows) <= 1e-12
    found = torch.autograd.grad(out, tensors, upstream)
    wanted = torch.autograd.grad(expected, wide, upstream)
    for side, a, b in zip("qkv", found, wanted, strict=True):
        assert relative_error(a, b) <= 1e-12, f"gradient of {side}"


@pytest.mark.parametrize("start", [3, 14, 30])
@pytest.mark.parametrize("pads", [1, 20, 40])
def test_parity_with_pads_inside_documents_and_foreign_ids_at_them(name, causal, start, pads):
    """Runs of pads that end or fill a chunk, carrying ids of no document."""
    length = 96
    mask = torch.ones(BATCH, length, dtype=torch.bool)
    mask[:, start : start + pads] = False
    mask[1, 80:] = False
    segments = (torch.arange(length) >= 75).long().repeat(BATCH, 1)
    segments[~mask] = torch.randint(5, 9, (int((~mask).sum()),))
    tensors = inputs(length)
    out, _ = build(name, length)(*tensors, causal=causal, key_mask=mask, query_segments=segments)
    wide, expected = reference(name, tensors, causal, length, key_mask=mask, segments=segments)
    rows = mask[:, None, :, None]
    upstream = torch.randn_like(out) * rows
    assert relative_error(out * rows, expected * rows) <= 1e-12
    found = torch.autograd.grad(out, tensors, upstream)
    for side, a, b in zip("qkv", found, torch.autograd.grad(expected, wide, upstream), strict=True):
        assert relative_error(a, b) <= 1e-12, f"gradient of {side}"


@pytest.mark.parametrize("mean", [1, 3, 10])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_in_16_bits_where_values_have_a_mean(name, causal, dtype, mean):
    """Σ ∂o·o nearly cancels there: an output rounded before its gradient leaves noise."""
    q, k, v = inputs(130, dtype)
    tensors = [q, k, (v.detach() + mean).requires_grad_()]
    check_parity(name, causal, tensors, dtype, positions=130)


def test_not_a_number_at_a_pad_goes_nowhere(name, causal):
    mask = padding(40, "right")
    tensors = inputs(40, torch.float32)
    mechanism = build(name, 40)
    rows = mask[:, None, :, None]
    out, _ = mechanism(*tensors, causal=causal, key_mask=mask)
    upstream = torch.randn_like(out) * rows
    wanted = torch.autograd.grad(out, tensors, upstream)
    dirty = [x.detach().masked_fill(~rows, torch.nan).requires_grad_() for x in tensors]
    found_out, _ = mechanism(*dirty, causal=causal, key_mask=mask)
    assert relative_error(found_out.masked_fill(~rows, 0), out * rows) <= 1e-6
    found = torch.autograd.grad(found_out, dirty, upstream)
    if mechanism.cache_kind == "recurrent state":
        for a, b in zip(found, wanted, strict=True):
            assert relative_error(a, b) <= 1e-6


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pads", [3, 12, 70])
def test_padding_changes_nothing(name, causal, side, pads):
    tensors = inputs(21, torch.float32)
    plain, _ = build(name, 32)(*tensors, causal=causal)
    upstream = torch.randn_like(plain)
    wanted = torch.autograd.grad(plain, tensors, upstream)

    def pad(x, value):
        ends = (0, 0, pads, 0) if side == "left" else (0, 0, 0, pads)
        return torch.nn.functional.pad(x, ends, value=value)

    real = slice(pads, None) if side == "left" else slice(0, 21)
    mask = torch.zeros(BATCH, 21 + pads, dtype=torch.bool)
    mask[:, real] = True
    # What stands at a pad must not matter, however large it is.
    wide = [pad(x.detach(), 1e3).requires_grad_() for x in tensors]
    out, _ = build(name, 32)(*wide, causal=causal, key_mask=mask)
    found = torch.autograd.grad(out[:, :, real], wide, upstream)
    assert relative_error(out[:, :, real], plain) <= 1e-5
    for a, b in zip(found, wanted, strict=True):
        assert relative_error(a[:, :, real], b) <= 1e-5
        assert a[:, :, ~mask[0]].abs().max() == 0


def test_rows_of_a_batch_do_not_see_each_other(name, causal):
    mask = padding(63, "right")
    tensors = inputs(63, torch.float32)
    out, _ = build(name, 64)(*tensors, causal=causal, key_mask=mask)
    alone, _ = build(name, 64)(
        *(x[1:] for x in tensors), causal=causal, key_mask=mask[1:]
    )  # fmt: skip
    assert relative_error(out[1:], alone) <= 1e-5


def test_packed_documents_equal_documents_alone(name, causal):
    cuts = [0, 5, 6, 40, 63]
    segments = torch.bucketize(torch.arange(63), torch.tensor(cuts[1:]), right=True)
    segments = segments.expand(BATCH, -1)
    tensors = inputs(63, torch.float32)
    mechanism = build(name, 64)
    out, _ = mechanism(*tensors, causal=causal, query_segments=segments)
    for start, stop in itertools.pairwise(cuts):
        alone, _ = mechanism(*(x[:, :, start:stop] for x in tensors), causal=causal)
        assert relative_error(out[:, :, start:stop], alone) <= 1e-5


def layouts(length):
    """q, k and v as views: of one projection, of (batch, seq, heads, dim), of one row."""
    fused = torch.randn(BATCH, length, 3, GROUPS, 16)
    yield "fused", fused, lambda x: [y.transpose(1, 2) for y in x.unbind(2)]
    apart = torch.randn(3, BATCH, length, GROUPS, 16)
    yield "transposed", apart, lambda x: list(x.transpose(2, 3))
    row = torch.randn(3, BATCH, GROUPS, 1, 16)
    yield "expanded", row, lambda x: list(x.expand(-1, -1, -1, length, -1))


def test_b11_strides_are_honoured(name, causal):
    mechanism = build(name, 32)
    for layout, base, cut in layouts(32):
        base.requires_grad_()
        upstream = torch.randn(BATCH, GROUPS, 1, 16).expand(-1, -1, 32, -1)
        out, _ = mechanism(*cut(base), causal=causal)
        plain, _ = mechanism(*(x.contiguous() for x in cut(base)), causal=causal)
        assert relative_error(out, plain) <= 1e-6, layout
        found = torch.autograd.grad(out, base, upstream)[0]
        wanted = torch.autograd.grad(plain, base, upstream.contiguous())[0]
        assert relative_error(found, wanted) <= 1e-6, layout


@pytest.mark.parametrize("t", [0, 15, 16, 40])
def test_the_future_does_not_leak(causal_name, t):
    tensors = inputs(65, torch.float32)
    changed = [
        torch.cat((x[:, :, : t + 1], torch.randn_like(x[:, :, t + 1 :])), 2) for x in tensors
    ]
    mechanism = build(causal_name, 65)
    before, _ = mechanism(*tensors, causal=True)
    after, _ = mechanism(*changed, causal=True)
    assert relative_error(after[:, :, : t + 1], before[:, :, : t + 1]) <= 1e-6
    for grad in torch.autograd.grad(before[:, :, t].sum(), tensors):
        assert grad[:, :, t + 1 :].abs().max() == 0


@pytest.mark.parametrize("cuts", [(1,), (16,), (20,), (7, 16, 50), tuple(range(1, 65))])
def test_any_split_equals_the_whole(causal_name, cuts):
    tensors = inputs(65, torch.float32)
    mechanism = build(causal_name, 65)
    positions = torch.arange(65)[None]
    whole, final = mechanism(*tensors, causal=True)
    state, parts = None, []
    for start, stop in zip((0, *cuts), (*cuts, 65), strict=True):
        q, k, v = (x[:, :, start:stop] for x in tensors)
        here = positions[:, start:stop]
        if mechanism.cache_kind == "full keys":
            k, v = (x[:, :, :stop] for x in tensors[1:])
            part, _ = mechanism(q, k, v, causal=True)
        else:
            part, state = mechanism(q, k, v, causal=True, query_positions=here, state=state)
        parts.append(part)
    joined = torch.cat(parts, 2)
    assert relative_error(joined, whole) <= 1e-5
    if final is not None:
        assert relative_error(state, final) <= 1e-5
    upstream = torch.randn_like(whole)
    found = torch.autograd.grad(joined, tensors, upstream)
    wanted = torch.autograd.grad(whole, tensors, upstream)
    for a, b in zip(found, wanted, strict=True):
        assert relative_error(a, b) <= 1e-5


@pytest.mark.parametrize("recurrent", [n for n in CAUSAL if CAUSAL[n].startswith("recurrent")])
def test_the_state_has_one_size(recurrent):
    mechanism = build(recurrent, 256)
    states = [mechanism(*inputs(n, torch.bfloat16), causal=True)[1] for n in (1, 200)]
    assert states[0].shape == states[1].shape
    assert states[0].dtype == torch.float32


def test_a_fully_padded_row_is_finite(name, causal):
    mask = torch.ones(BATCH, 20, dtype=torch.bool)
    mask[0] = False
    tensors = inputs(20, torch.float32)
    out, _ = build(name, 20)(*tensors, causal=causal, key_mask=mask)
    assert out[0].abs().max() == 0
    for grad in torch.autograd.grad(out.sum(), tensors):
        assert torch.isfinite(grad).all()
        assert grad[0].abs().max() == 0


def test_positions_may_be_given(name, causal):
    mask = padding(30, "left")
    tensors = inputs(30, torch.float32)
    mechanism = build(name, 30)
    positions = real_positions(30, key_mask=mask).masked_fill(~mask, 12345)
    out, _ = mechanism(*tensors, causal=causal, key_mask=mask)
    given, _ = mechanism(*tensors, causal=causal, key_mask=mask, query_positions=positions)
    rows = mask[:, None, :, None]
    assert relative_error(given * rows, out * rows) <= 1e-6


def test_documents_that_are_not_contiguous_are_refused(name, causal):
    segments = torch.tensor([0, 1, 1, 0]).expand(BATCH, -1)
    with pytest.raises(ValueError, match="not contiguous"):
        build(name, 16)(*inputs(4), causal=causal, query_segments=segments)


def test_wrong_shapes_are_refused(name, causal):
    q, k, v = inputs(8)
    mechanism = build(name, 16)
    for empty in ((q[:, :, :0], k, v), (q, k[:, :, :0], v[:, :, :0]), (q, k[:, :0], v[:, :0])):
        with pytest.raises(ValueError, match="at least"):
            mechanism(*empty, causal=causal)
    with pytest.raises(ValueError, match="head_dim"):
        mechanism(q[..., :8], k, v, causal=causal)
    with pytest.raises(ValueError, match="kv_heads"):
        mechanism(q, k[:, :2], v, causal=causal)
    with pytest.raises(ValueError, match="key_mask must be bool"):
        mechanism(q, k, v, causal=causal, key_mask=torch.ones(BATCH, 8))
    with pytest.raises(ValueError, match="query_positions"):
        mechanism(q, k, v, causal=causal, query_positions=torch.arange(7)[None])
