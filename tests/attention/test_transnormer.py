"""TransNormer's two mechanisms, beyond what every mechanism promises."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hf_linear_attn.attention.rotary import LRPE, RotaryEmbedding
from hf_linear_attn.attention.transnormer import (
    TransNormerDiagAttention,
    TransNormerNormAttention,
)
from tests.attention.test_contract import packing, padding
from tests.errors import relative_error
from tests.reference import transnormer_diag, transnormer_norm

FORMULA = {TransNormerNormAttention: transnormer_norm, TransNormerDiagAttention: transnormer_diag}
VERSIONS = ("t1", "t2")


def qkv(length, dtype=torch.float64, batch=2, heads=4, groups=2, head_dim=12, value_dim=8):
    shapes = ((heads, head_dim), (groups, head_dim), (groups, value_dim))
    return [
        torch.randn(batch, h, length, d, dtype=torch.float64).to(dtype).requires_grad_()
        for h, d in shapes
    ]


def build(mechanism, version, **fields):
    size = {"block_size": 16} if mechanism is TransNormerDiagAttention else {"chunk_size": 16}
    return mechanism(transnormer_version=version, **{**size, **fields})


@pytest.fixture(params=list(FORMULA), ids=["norm", "diag"])
def mechanism(request):
    return request.param


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("causal", [False, True], ids=["both", "causal"])
@pytest.mark.parametrize("length", [1, 5, 16, 17, 50, 64])
@pytest.mark.parametrize("kind", ["full", "left", "right", "packed", "packed and padded"])
def test_both_versions_equal_the_formula(mechanism, version, causal, length, kind):
    side = "left" if kind in ("left", "packed and padded") else "right"
    mask = padding(length, side) if kind in ("left", "right", "packed and padded") else None
    segments = packing(length) if kind.startswith("packed") else None
    tensors = qkv(length)
    out, _ = build(mechanism, version)(
        *tensors, causal=causal, key_mask=mask, query_segments=segments
    )
    wide = [x.detach().clone().requires_grad_() for x in tensors]
    expected = FORMULA[mechanism](
        *wide, causal=causal, key_mask=mask, segments=segments, transnormer_version=version,
        block_size=16,
    )  # fmt: skip
    rows = 1 if mask is None else mask[:, None, :, None]
    upstream = torch.randn_like(out) * rows
    assert relative_error(out * rows, expected * rows) <= 1e-12
    found = torch.autograd.grad(out, tensors, upstream)
    wanted = torch.autograd.grad(expected, wide, upstream)
    scale = upstream.norm() if length == 1 else None
    for a, b in zip(found, wanted, strict=True):
        assert relative_error(a, b, scale) <= 1e-12


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rotary", [None, LRPE, RotaryEmbedding], ids=["plain", "lrpe", "rope"])
@pytest.mark.parametrize("cuts", [(3,), (16,), (21, 22), (5, 10, 30), tuple(range(1, 40))])
def test_any_split_of_left_padded_rows_equals_the_whole(mechanism, version, rotary, cuts):
    """Rows are in different places of their blocks; the first pieces of one row are all padding."""
    length = 40
    layer = build(mechanism, version, rotary=None if rotary is None else rotary(12)).double()
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, :7] = False
    positions = (mask.long().cumsum(1) - 1).clamp_min(0)
    tensors = qkv(length)
    whole, final = layer(*tensors, causal=True, key_mask=mask)
    state, parts = None, []
    for start, stop in zip((0, *cuts), (*cuts, length), strict=True):
        here = slice(start, stop)
        part, state = layer(
            *(x[:, :, here] for x in tensors), causal=True, key_mask=mask[:, here],
            query_positions=positions[:, here], state=state,
        )  # fmt: skip
        parts.append(part)
    rows = mask[:, None, :, None]
    joined = torch.cat(parts, 2) * rows
    assert relative_error(joined, whole * rows) <= 1e-12
    assert relative_error(state, final) <= 1e-12
    upstream = torch.randn_like(whole) * rows
    found = torch.autograd.grad(joined, tensors, upstream)
    for a, b in zip(found, torch.autograd.grad(whole, tensors, upstream), strict=True):
        assert relative_error(a, b) <= 1e-12


def test_the_norm_spans_all_heads():
    """One head is a thousand times larger: a norm of each head alone would hide that."""
    q, k, v = qkv(10, groups=4)
    v = v.detach() * torch.tensor([1000.0, 1, 1, 1], dtype=torch.float64)[:, None, None]
    out, _ = TransNormerNormAttention()(q, k, v, causal=False)
    assert out[:, 1:].abs().max() < 0.1
    assert relative_error(out.square().mean((1, 3)), torch.ones(2, 10)) <= 1e-6


def test_sums_beyond_the_range_of_fp16():
    ones = torch.full((1, 1, 32768, 4), 2.0, dtype=torch.float16)
    out, _ = TransNormerNormAttention()(ones, ones, ones, causal=True)
    assert out.dtype == torch.float16
    assert (out == 1).all()


def test_the_gradient_at_a_zero_row_is_bounded():
    q, k, v = (x.detach().requires_grad_() for x in qkv(6, torch.float32))
    out, _ = TransNormerNormAttention()(q, k, v * 0, causal=True)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(torch.isfinite(g).all() for g in grads)


def test_blocks_begin_at_the_first_real_token():
    """Pads on the left move every column, and no border."""
    tensors = qkv(10, batch=1)
    layer = TransNormerDiagAttention(block_size=4)
    plain, _ = layer(*tensors, causal=False)
    for pads in (1, 2, 3, 5):
        wide = [torch.nn.functional.pad(x, (0, 0, pads, 0)) for x in tensors]
        mask = torch.arange(10 + pads)[None] >= pads
        out, _ = layer(*wide, causal=False, key_mask=mask)
        assert relative_error(out[:, :, pads:], plain) <= 1e-12


def test_tokens_missing_from_a_block_take_no_weight():
    """A token alone in its block gives its own value; three zero keys beside it would take 3/4."""
    q, k, v = qkv(5)
    out, _ = TransNormerDiagAttention(block_size=4)(q * 0, k, v, causal=False)
    expected = v.repeat_interleave(2, dim=1)[:, :, 4]
    assert relative_error(out[:, :, 4], expected) <= 1e-12


def test_positions_turn_inside_a_block_only():
    """The second block holds the vectors of the first: it gives the outputs of the first."""
    tensors = [torch.cat((x, x), 2) for x in qkv(8, batch=1)]
    layer = TransNormerDiagAttention(block_size=8, rotary=LRPE(12)).double()
    out, _ = layer(*tensors, causal=False)
    assert relative_error(out[:, :, 8:], out[:, :, :8]) <= 1e-12


def test_the_window_holds_the_current_block_and_nothing_else():
    layer = TransNormerDiagAttention(block_size=4)
    filled = []
    for length in range(1, 10):
        _, state = layer(*qkv(length, torch.float32), causal=True)
        assert state.shape == (2, 2, 4, 12 + 8 + 1)
        filled.append(int((state[0, 0].abs().sum(-1) > 0).sum()))
    assert filled == [1, 2, 3, 4, 1, 2, 3, 4, 1]


def test_positions_given_with_gaps_make_the_blocks():
    tensors = qkv(9)
    positions = torch.tensor([[0, 3, 4, 9, 10, 11, 12, 30, 31]])
    out, _ = TransNormerDiagAttention(block_size=4)(
        *tensors, causal=False, query_positions=positions
    )
    expected = transnormer_diag(
        *tensors, causal=False, query_positions=positions, block_size=4
    )  # fmt: skip
    assert relative_error(out, expected) <= 1e-12


@pytest.mark.parametrize("positions", [[0, 1, 1, 2], [0, 2, 1, 3], [-1, 0, 1, 2]])
def test_positions_that_make_no_blocks_are_refused(positions):
    with pytest.raises(ValueError, match="rise with every real token"):
        TransNormerDiagAttention()(*qkv(4), causal=False, query_positions=torch.tensor([positions]))


def test_positions_may_start_again_with_a_document():
    layer = TransNormerDiagAttention(block_size=4)
    segments = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    layer(
        *qkv(6), causal=False, query_segments=segments,
        query_positions=torch.tensor([[5, 6, 7, 0, 1, 2]]),
    )  # fmt: skip
    with pytest.raises(ValueError, match="rise with every real token"):
        layer(
            *qkv(6), causal=False, query_segments=segments,
            query_positions=torch.tensor([[5, 6, 7, 0, 2, 1]]),
        )  # fmt: skip


def test_wrong_words_and_sizes_are_refused():
    for kind in FORMULA:
        with pytest.raises(ValueError, match=r"transnormer_version is 't3'.*'t1', 't2'"):
            kind(transnormer_version="t3")
        with pytest.raises(ValueError, match=r"xnorm is 'batchnorm'.*srmsnorm"):
            kind(xnorm="batchnorm")
    with pytest.raises(ValueError, match="block_size must be at least 1"):
        TransNormerDiagAttention(block_size=0)
    q, k, v = qkv(8)
    with pytest.raises(ValueError, match="self-attention"):
        TransNormerDiagAttention()(q[:, :, :4], k, v, causal=False)
    _, state = TransNormerDiagAttention(block_size=4)(q, k, v, causal=True)
    with pytest.raises(ValueError, match="state must have shape"):
        TransNormerDiagAttention(block_size=8)(
            q, k, v, causal=True, state=state, query_positions=torch.arange(8, 16)[None]
        )
    with pytest.raises(ValueError, match="without segments"):
        TransNormerDiagAttention(block_size=4)(
            q, k, v, causal=True, state=state, query_positions=torch.arange(8, 16)[None],
            query_segments=torch.zeros(2, 8, dtype=torch.long),
        )  # fmt: skip


def test_layernorm_as_the_norm():
    q, k, v = qkv(6)
    out, _ = TransNormerNormAttention(xnorm="layernorm")(q, k, v, causal=False)
    assert out.mean((1, 3)).abs().max() <= 1e-12


def test_a_state_is_not_written_over_by_positions_behind_it():
    layer = TransNormerDiagAttention(block_size=4)
    _, state = layer(*qkv(6), causal=True)
    for position in (2, 5):
        with pytest.raises(ValueError, match="fall behind those in the state"):
            layer(
                *qkv(1), causal=True, state=state, query_positions=torch.tensor([[position]])
            )  # fmt: skip
    layer(*qkv(1), causal=True, state=state, query_positions=torch.tensor([[6]]))


def test_dropout_acts_on_the_weights_in_training_alone():
    tensors = qkv(64, torch.float32, batch=16)
    plain, _ = TransNormerDiagAttention(block_size=16)(*tensors, causal=False)
    layer = TransNormerDiagAttention(block_size=16, attention_probs_dropout_prob=0.5)
    assert torch.equal(layer.eval()(*tensors, causal=False)[0], plain)
    layer.train()
    draws = torch.stack([layer(*tensors, causal=False)[0] for _ in range(200)])
    assert relative_error(draws[0], plain) > 0.3
    # What is kept is scaled up: the mean is the output without dropout.
    assert relative_error(draws.mean(0), plain) < 0.1


@pytest.mark.parametrize("version", VERSIONS)
def test_under_autocast_nothing_is_rounded_inside(mechanism, version):
    tensors = qkv(40, torch.float32)
    layer = build(mechanism, version)
    plain, _ = layer(*tensors, causal=False)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = layer(*tensors, causal=False)
    assert found.dtype == torch.float32
    assert relative_error(found, plain) <= 1e-6


def test_blocks_that_are_chunks_cost_a_third():
    """Default positions are known to make whole blocks: no chunk looks at its neighbours."""
    tensors = [x.detach() for x in qkv(256, torch.float32)]
    layer = TransNormerDiagAttention(block_size=16)
    work = []
    for positions in (None, torch.arange(256)[None]):
        with FlopCounterMode(display=False) as counter:
            layer(*tensors, causal=False, query_positions=positions)
        work.append(counter.get_total_flops())
    assert work[0] * 3 == work[1]
