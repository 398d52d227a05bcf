"""Every mechanism, on random calls, equals its O(n²) float64 formula: output and gradients."""

import torch
from hypothesis import given

from tests.errors import relative_error
from tests.properties.attention_cases import cases
from tests.properties.examples import examples
from tests.reference import REFERENCES

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-2}
# What is much smaller than what stands beside it is measured against a share of that.
SMALL = 1 / 20


def formula(case, mechanism, tensors, mask, segments, positions):
    """The reference on the same rounded inputs, in float64."""
    wide = [x.detach().double().requires_grad_() for x in tensors]
    fields = {k: v for k, v in case.fields.items() if k != "chunk_size"}
    conv = getattr(mechanism, "conv", None)
    out = REFERENCES[case.name](
        *wide, causal=case.causal, key_mask=mask, segments=segments, query_positions=positions,
        max_position_embeddings=3 * case.length, eps=fields.pop("attention_eps", 1e-6),
        conv_weight=None if conv is None else conv.weight, **fields,
    )  # fmt: skip
    # Where every token is a pad, nothing in the formula wants gradients.
    return wide, out + 0 * sum(x.sum() for x in wide)


def check_parity(case):
    tensors, (mask, segments, positions) = case.tensors(), case.tokens()
    mechanism = case.build()
    out, _ = mechanism(
        *tensors, causal=case.causal, key_mask=mask, query_segments=segments,
        query_positions=positions,
    )  # fmt: skip
    wide, expected = formula(case, mechanism, tensors, mask, segments, positions)
    assert out.dtype == case.dtype
    real = 1 if mask is None else mask[:, None, :, None]
    upstream = torch.randn(out.shape, generator=case.drawn, dtype=torch.float64) * real
    tolerance = TOLERANCE[case.dtype]
    scale = SMALL * tensors[2].detach().double().norm()
    assert relative_error(out * real, expected * real, scale) <= tolerance
    upstream = upstream.to(case.dtype)
    found = torch.autograd.grad(out, tensors, upstream)
    wanted = torch.autograd.grad(expected, wide, upstream.double())
    scale = SMALL * torch.stack([x.double().norm() for x in (*wanted, upstream)]).norm()
    for side, a, b in zip("qkv", found, wanted, strict=True):
        assert relative_error(a, b, scale) <= tolerance, f"gradient of {side}"


@examples(500)
@given(case=cases())
def test_a_mechanism_equals_its_formula(case):
    check_parity(case)


@examples(250)
@given(case=cases(dtypes=(torch.float32, torch.bfloat16, torch.float16)))
def test_a_mechanism_equals_its_formula_in_fewer_bits(case):
    check_parity(case)
