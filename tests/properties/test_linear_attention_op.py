"""`linear_attention` on random calls equals explicit weights: with any state, angles, strides.

What the mechanisms do not ask of it by themselves: queries and keys of different lengths, a state
that no prefix made, tensors of any strides, a gradient of the state alone.
"""

import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_linear_attn.ops.linear_attention import linear_attention
from tests.errors import relative_error
from tests.properties.attention_cases import lengths, off_zero
from tests.properties.examples import examples
from tests.reference import allowed_pairs, repeat_heads

MAPS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "elu": lambda x: torch.where(x > 0, x, x.exp() - 1),
    "elu_plus_one": lambda x: torch.where(x > 0, x + 1, x.exp()),
}


def widened(x, angles):
    """Features [φ cos, φ sin], so that a product of two of them has the cosine of a difference."""
    if angles is None:
        return x
    angles = angles[:, None, :, None]
    return torch.cat((x * angles.cos(), x * angles.sin()), dim=-1)


def formula(q, k, v, state, *, kind, causal, normalize, angles, mask, segments, eps):
    """Explicit weights; the state adds what it would be the sum of, and goes on."""
    heads, (n, m) = q.shape[1], (q.shape[2], k.shape[2])
    q, k = widened(MAPS[kind](q), angles[0]), widened(MAPS[kind](k), angles[1])
    pairs = allowed_pairs(n, m, key_mask=mask, segments=segments, causal=causal)
    if normalize:
        v = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
    out = q @ repeat_heads(k, heads).mT * pairs @ repeat_heads(v, heads)
    final = k.mT @ (v if mask is None else v * mask[:, None, :, None])
    if state is not None:
        out, final = out + q @ repeat_heads(state, heads), final + state
    if not normalize:
        return out, final
    top, total = out[..., :-1], out[..., -1:]
    dead = total <= 0
    return (top / total.masked_fill(dead, 1).clamp_min(eps)).masked_fill(dead, 0), final


@st.composite
def calls(draw):
    """Keywords of a call, and the numbers that its tensors follow from."""
    causal, segments = draw(st.booleans()), draw(st.booleans())
    normalize = draw(st.booleans())
    return {
        "batch": draw(st.integers(1, 3)),
        "groups": draw(st.integers(1, 3)),
        "per_group": draw(st.integers(1, 3)),
        "queries": draw(lengths()),
        "keys": None if causal or segments else draw(lengths()),
        "head_dim": draw(st.integers(1, 17)),
        "value_dim": draw(st.integers(1, 17)),
        "causal": causal,
        "normalize": normalize,
        # Weights below 0 are no sum to divide by.
        "kind": draw(st.sampled_from(["relu", "elu_plus_one"] if normalize else list(MAPS))),
        "angles": draw(st.sampled_from([None, "row", "batch"])),
        "mask": draw(st.booleans()),
        "segments": segments,
        "state": causal and not segments and draw(st.booleans()),
        "strided": draw(st.booleans()),
        "recompute_states": draw(st.booleans()),
        "chunk_size": draw(st.integers(1, 24)),
        "eps": draw(st.sampled_from([1e-6, 1e-2])),
        "seed": draw(st.integers(0, 2**16)),
    }


def tensors_of(call):
    """q, k, v, state or None, angles, mask, segments."""
    B, G, N, D, E = (call[x] for x in ("batch", "groups", "queries", "head_dim", "value_dim"))
    M = call["keys"] or N
    drawn = torch.Generator().manual_seed(call["seed"])

    def normal(*shape):
        if call["strided"]:
            b, h, s, d = shape
            x = off_zero(drawn, b, s, h, d).transpose(1, 2)
        else:
            x = off_zero(drawn, *shape)
        return x.detach().requires_grad_()

    qkv = [normal(B, G * call["per_group"], N, D), normal(B, G, M, D), normal(B, G, M, E)]
    rows, angles = {None: 0, "row": 1, "batch": B}[call["angles"]], (None, None)
    if rows:
        # Up to a quarter turn: a difference has a cosine above 0.
        angles = tuple(
            1.5 * torch.rand(rows, n, generator=drawn, dtype=torch.float64) for n in (N, M)
        )
    mask = torch.rand(B, M, generator=drawn) > 0.3 if call["mask"] else None
    segments = None
    if call["segments"]:
        segments = (torch.rand(B, N, generator=drawn) > 0.8).long().cumsum(1)
    state = None
    if call["state"]:
        state = normal(B, G, D * (1 + (rows > 0)), E + call["normalize"])
        if call["normalize"]:
            # What a prefix of positive features sums up to.
            state = state.detach().abs().requires_grad_()
    return qkv, state, angles, mask, segments


@examples(250)
@given(call=calls())
def test_the_op_equals_its_formula(call):
    qkv, state, angles, mask, segments = tensors_of(call)
    out, final = linear_attention(
        *qkv, causal=call["causal"], feature_map=call["kind"], normalize=call["normalize"],
        q_angles=angles[0], k_angles=angles[1], key_mask=mask, segments=segments, state=state,
        chunk_size=call["chunk_size"], eps=call["eps"], recompute_states=call["recompute_states"],
    )  # fmt: skip
    expected, expected_final = formula(
        *qkv, state, kind=call["kind"], causal=call["causal"], normalize=call["normalize"],
        angles=angles, mask=mask, segments=segments, eps=call["eps"],
    )  # fmt: skip
    leaves = [x for x in (*qkv, state) if x is not None]
    upstream = torch.randn_like(out)
    check = [(out, expected, upstream)]
    assert (final is not None) == call["causal"]
    if final is not None and segments is None:
        check.append((final, expected_final, torch.randn_like(final)))
    for found, wanted, _ in check:
        assert relative_error(found, wanted, scale=0.05 * qkv[2].norm()) <= 1e-10
    grads = [
        torch.autograd.grad(
            [item[side] for item in check], leaves, [item[2] for item in check],
            allow_unused=True, materialize_grads=True,
        )
        for side in (0, 1)
    ]  # fmt: skip
    scale = 0.05 * torch.stack([x.norm() for x in (*grads[1], upstream)]).norm()
    for name, a, b in zip(("q", "k", "v", "state"), *grads, strict=False):
        assert relative_error(a, b, scale) <= 1e-10, f"gradient of {name}"
