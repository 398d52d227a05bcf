"""Nyström attention, beyond what every mechanism promises."""

import itertools

import pytest
import torch

from hf_linear_attn.attention import build_attention
from hf_linear_attn.attention.nystrom import NystromAttention
from hf_linear_attn.ops import nystrom_attention as ops
from hf_linear_attn.ops.nystrom_attention import pseudo_inverse, segment_averages
from tests.errors import relative_error
from tests.reference import nystrom, repeat_heads, softmax


def qkv(length, dtype=torch.float64, batch=2, heads=4, groups=2, head_dim=12, value_dim=8):
    shapes = ((heads, head_dim), (groups, head_dim), (groups, value_dim))
    return [
        torch.randn(batch, h, length, d, dtype=torch.float64).to(dtype).requires_grad_()
        for h, d in shapes
    ]


def left_aligned(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("real", [16, 8, 3])
@pytest.mark.parametrize("side", ["right", "left"])
def test_b13_masked_rows_are_finite_and_equal_the_unpadded_run(real, side):
    """19 tokens, 8 landmarks: the last 3, the last 11 masked, then 3 real tokens alone."""
    q, k, v = qkv(19, torch.float32, batch=1)
    layer = NystromAttention(num_landmarks=8, conv_kernel_size=5, num_attention_heads=4)
    kept = slice(0, real) if side == "right" else slice(19 - real, 19)
    mask = torch.zeros(1, 19, dtype=torch.bool)
    mask[:, kept] = True
    out, _ = layer(q, k, v, causal=False, key_mask=mask)
    plain, _ = layer(*(x[:, :, kept] for x in (q, k, v)), causal=False)
    assert torch.isfinite(out).all()
    assert relative_error(out[:, :, kept], plain) <= 1e-5
    for grad in torch.autograd.grad(out[:, :, kept].sum(), (q, k, v)):
        assert torch.isfinite(grad).all()


def test_b14_row_i_belongs_to_token_i():
    """37 tokens, 40 landmarks, no convolution: exact softmax attention, row by row."""
    q, k, v = qkv(37, torch.float32)
    layer = NystromAttention(num_landmarks=40)
    out, _ = layer(q, k, v, causal=False)
    expected = softmax(*(x.detach().double() for x in (q, k, v)), causal=False)
    assert (out - expected).norm(dim=-1).div(expected.norm(dim=-1)).max() <= 1e-4
    # Each query sees its own token best.
    k, v = q.detach().clone(), torch.randn(2, 4, 37, 8)
    changed = v.clone()
    changed[:, :, 36] += 1
    moved = layer(q, k, changed, causal=False)[0] - layer(q, k, v, causal=False)[0]
    assert (moved.norm(dim=(1, 3)).argmax(1) == 36).all()


def test_b14_twenty_iterations_at_a_landmark_a_token_are_softmax():
    """What the layer need not compute there: P · P⁺ · P is P."""
    q, k, v = qkv(37, torch.float32, groups=4)
    weights = torch.softmax(q @ k.mT / 12**0.5, -1)
    out = weights @ pseudo_inverse(weights, 20) @ (weights @ v)
    expected = softmax(*(x.detach().double() for x in (q, k, v)), causal=False)
    assert (out - expected).norm(dim=-1).div(expected.norm(dim=-1)).max() <= 1e-3


def test_b16_a_causal_form_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="means over all tokens"):
        NystromAttention()(*qkv(4), causal=True)


@pytest.mark.parametrize("landmarks", [1, 2, 7, 16, 31])
@pytest.mark.parametrize("lengths", [(40, 40), (33, 40), (5, 40), (16, 17), (0, 40)])
def test_any_number_of_landmarks_and_any_length(landmarks, lengths):
    """Rows with fewer tokens than landmarks are exact, beside rows that are not."""
    mask = left_aligned(lengths)
    tensors = qkv(mask.shape[1])
    out, _ = NystromAttention(num_landmarks=landmarks)(*tensors, causal=False, key_mask=mask)
    wide = [x.detach().clone().requires_grad_() for x in tensors]
    expected = nystrom(*wide, causal=False, key_mask=mask, num_landmarks=landmarks)
    rows = mask[:, None, :, None]
    upstream = torch.randn_like(out) * rows
    assert relative_error(out * rows, expected) <= 1e-11
    found = torch.autograd.grad(out, tensors, upstream)
    for a, b in zip(found, torch.autograd.grad(expected, wide, upstream), strict=True):
        assert relative_error(a, b, 1e-3) <= 1e-11


def test_segments_follow_the_rule():
    """10 tokens, 4 landmarks: 2, 2, 3, 3; a left-padded row counts from its first real token."""
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, :2] = False
    sizes = (segment_averages(mask, 4) > 0).sum(-1).tolist()
    assert sizes == [[2, 2, 3, 3], [3, 3, 3, 3]]
    first = segment_averages(mask, 4)[0, 0]
    assert first.nonzero().flatten().tolist() == [2, 3]


def test_the_inverse_of_one_matrix_does_not_depend_on_another():
    well = torch.softmax(torch.eye(6, dtype=torch.float64) * 4, -1).expand(2, 1, 6, 6).clone()
    inverse = pseudo_inverse(well, 12)
    assert relative_error(inverse, torch.linalg.pinv(well)) <= 1e-9
    # One column that takes everything: its 1-norm is 6.
    well[1] = 1e-3
    well[1, :, :, 0] = 1
    assert torch.equal(pseudo_inverse(well, 3)[0], pseudo_inverse(well[:1], 3)[0])


def convolved(v, weight, mask, segments, heads):
    """Σ_o weight[h, o] · v of the real token o places on, document by document: plain loops."""
    v = repeat_heads(v, heads)
    out = torch.zeros_like(v)
    half = weight.shape[1] // 2
    for b, document in itertools.product(range(v.shape[0]), segments.unique().tolist()):
        at = (mask[b] & (segments[b] == document)).nonzero().flatten().tolist()
        for i, place in enumerate(at):
            for o in range(-half, half + 1):
                if 0 <= i + o < len(at):
                    out[b, :, place] += weight[:, o + half, None] * v[b, :, at[i + o]]
    return out


@pytest.mark.parametrize("kind", ["full", "left", "right", "inside", "packed"])
def test_the_convolution_sees_real_tokens_of_one_document(kind):
    length, heads = 30, 4
    mask = torch.ones(2, length, dtype=torch.bool)
    segments = torch.zeros(2, length, dtype=torch.long)
    if kind == "left":
        mask[0, :9] = False
    if kind == "right":
        mask[0, -9:] = False
    if kind in ("inside", "packed"):
        mask[0, 11:14] = False
    if kind == "packed":
        segments[:, 10:] = 3
        segments[1, 11:] = 1
    q, k, v = qkv(length)
    settings = {"num_landmarks": 6, "conv_kernel_size": 7, "num_attention_heads": heads}
    layer = NystromAttention(**settings).double()
    tokens = {"key_mask": mask, "query_segments": segments if kind == "packed" else None}
    out, _ = layer(q, k, v.detach() * mask[:, None, :, None] + 1e3 * ~mask[:, None, :, None],
                   causal=False, **tokens)  # fmt: skip
    plain, _ = NystromAttention(num_landmarks=6)(q, k, v, causal=False, **tokens)
    expected = convolved(v.detach(), layer.conv.weight[:, 0, :, 0].detach(), mask, segments, heads)
    rows = mask[:, None, :, None]
    assert relative_error((out - plain) * rows, expected * rows) <= 1e-11


def test_no_matrix_of_all_pairs_is_formed():
    sizes = []

    class Record(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in torch.utils._pytree.tree_leaves(out)
                         if isinstance(x, torch.Tensor))  # fmt: skip
            return out

    tensors = qkv(1024, torch.float32, batch=1, heads=1, groups=1)
    with Record():
        out, _ = NystromAttention(num_landmarks=8)(*tensors, causal=False)
        out.sum().backward()
    assert max(sizes) <= 1024 * 16


def test_many_short_documents_cost_no_more_than_one_long_one(monkeypatch):
    """One document of 500 tokens beside 500 of one token: no 501 × 500 layout."""
    seen = []
    layer = NystromAttention(num_landmarks=8)
    attend = ops._one_document
    monkeypatch.setattr(
        ops,
        "_one_document",
        lambda q, k, v, w, mask, *sizes: (
            seen.append(mask.numel()),
            attend(q, k, v, w, mask, *sizes),
        )[1],
    )
    segments = torch.cat((torch.zeros(500), torch.arange(1, 501))).long()[None]
    layer(*qkv(1000, batch=1), causal=False, query_segments=segments)
    assert sum(seen) <= 2 * 1000


def test_what_it_cannot_do_is_refused():
    for count in (0, 2.5):
        with pytest.raises(ValueError, match="num_landmarks"):
            NystromAttention(num_landmarks=count)
    for size in (4, 0, -1):
        with pytest.raises(ValueError, match="odd number"):
            NystromAttention(conv_kernel_size=size, num_attention_heads=4)
    with pytest.raises(ValueError, match="num_attention_heads"):
        build_attention("nystrom", {"conv_kernel_size": 3})
    q, k, v = qkv(8)
    with pytest.raises(ValueError, match="self-attention"):
        NystromAttention()(q[:, :, :4], k, v, causal=False)
    with pytest.raises(ValueError, match="the query has 4 heads"):
        NystromAttention(conv_kernel_size=3, num_attention_heads=8)(q, k, v, causal=False)
    with pytest.raises(ValueError, match="carries no state"):
        NystromAttention()(q, k, v, causal=False, state=torch.zeros(1))


def test_under_autocast_nothing_is_rounded_inside():
    tensors = qkv(40, torch.float32)
    layer = NystromAttention(num_landmarks=8, conv_kernel_size=5, num_attention_heads=4)
    plain, _ = layer(*tensors, causal=False)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = layer(*tensors, causal=False)
    assert found.dtype == torch.float32
    assert relative_error(found, plain) <= 1e-6


def test_a_fully_padded_row_puts_no_nan_into_the_backward_pass():
    mask = left_aligned((0, 40, 3))
    tensors = qkv(40, torch.float32, batch=3)
    with torch.autograd.detect_anomaly(check_nan=True):
        out, _ = NystromAttention(num_landmarks=8)(*tensors, causal=False, key_mask=mask)
        out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in tensors)


def test_the_op_refuses_what_does_not_fit_together():
    q, k, v = qkv(8)
    attend = ops.nystrom_attention
    for wrong in ((q[0], k, v), (q, k[:, :, :4], v[:, :, :4]), (q[:, :3], k, v), (q.int(), k, v)):
        with pytest.raises(ValueError, match=r"q, k, v must be float|must agree"):
            attend(*wrong, num_landmarks=2)
    with pytest.raises(ValueError, match="key_mask must be bool"):
        attend(q, k, v, num_landmarks=2, key_mask=torch.ones(2, 8))
    with pytest.raises(ValueError, match="segments must have shape"):
        attend(q, k, v, num_landmarks=2, segments=torch.zeros(2, 8))
    for shape in ((4, 1, 4, 1), (4, 1, 1, 3)):
        with pytest.raises(ValueError, match="odd number of taps"):
            attend(q, k, v, num_landmarks=2, conv_weight=torch.zeros(shape))
