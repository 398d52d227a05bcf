"""Token by token, in place: what the whole sequence gives, and what is refused."""

import itertools

import pytest
import torch

from hf_linear_attn.ops import RecurrentDecoder, linear_attention
from tests.errors import relative_error

LENGTH = 20
MAPS = ("relu", "elu_plus_one", "elu", "identity")
KINDS = list(itertools.product(MAPS, [True, False], [True, False], [4, 2]))


def draw(dtype=torch.float32, groups=2):
    q = torch.randn(2, 4, LENGTH, 6, dtype=dtype)
    k = torch.randn(2, groups, LENGTH, 6, dtype=dtype)
    v = torch.randn(2, groups, LENGTH, 5, dtype=dtype)
    return q, k, v


def decode(decoder, q, k, v, angles=None):
    outs = [
        decoder(
            *(x[:, :, t : t + 1] for x in (q, k, v)),
            None if angles is None else angles[:, t : t + 1],
        )
        for t in range(q.shape[2])
    ]
    return torch.cat(outs, 2)


@pytest.mark.parametrize(("feature_map", "normalize", "turned", "groups"), KINDS)
def test_tokens_are_the_sequence(feature_map, normalize, turned, groups):
    if feature_map in ("elu", "identity") and normalize:
        pytest.skip("sums of weights of both signs have no normaliser")
    q, k, v = draw(groups=groups)
    # A row of its own for each, as after a padded prompt.
    angles = torch.linspace(0, 1.5, LENGTH)[None] * torch.tensor([[1.0], [0.5]]) if turned else None
    settings = {"feature_map": feature_map, "normalize": normalize}
    places = {"q_angles": angles, "k_angles": angles}
    wanted, last = linear_attention(q, k, v, causal=True, **places, **settings)
    half = [x[:, :, :7] for x in (q, k, v)]
    some = None if angles is None else angles[:, :7]
    _, state = linear_attention(
        *half, causal=True, q_angles=some, k_angles=some, **settings
    )  # fmt: skip
    before = state.clone()
    decoder = RecurrentDecoder(state, 4, turned=turned, **settings)
    rest = None if angles is None else angles[:, 7:]
    found = decode(decoder, *(x[:, :, 7:] for x in (q, k, v)), rest)
    assert relative_error(found, wanted[:, :, 7:]) < 1e-5
    assert relative_error(decoder.state, last) < 1e-5
    assert torch.equal(state, before)
    assert wanted[:, :, 7:].abs().mean() > 0.05


def test_an_output_is_not_overwritten_by_the_next_token():
    q, k, v = draw()
    for normalize in (True, False):
        decoder = RecurrentDecoder(
            torch.zeros(2, 2, 6, 5 + normalize), 4, feature_map="relu", normalize=normalize
        )
        first = decoder(*(x[:, :, :1] for x in (q, k, v)))
        before = first.clone()
        decoder(*(x[:, :, 1:2] for x in (q, k, v)))
        assert torch.equal(first, before)


@pytest.mark.parametrize("turned", [True, False])
def test_a_query_that_meets_nothing_gives_zero(turned):
    decoder = RecurrentDecoder(torch.zeros(1, 1, 6 + 6 * turned, 6), 1, feature_map="relu",
                               turned=turned)  # fmt: skip
    q, k, v = -torch.ones(1, 1, 1, 6), torch.ones(1, 1, 1, 6), torch.ones(1, 1, 1, 5)
    angles = torch.zeros(1, 1) if turned else None
    assert decoder(q, k, v, angles).abs().max() == 0
    assert decoder(k, k, v, angles).eq(1).all()


def test_a_sum_of_weights_below_zero_gives_zero():
    """As angles more than a right angle apart make them."""
    decoder = RecurrentDecoder(torch.zeros(1, 1, 12, 6), 1, feature_map="relu", turned=True)
    ones, v = torch.ones(1, 1, 1, 6), torch.ones(1, 1, 1, 5)
    decoder(ones, ones, v, torch.zeros(1, 1))
    assert decoder(ones, 0 * ones, v, torch.full((1, 1), 3.0)).abs().max() == 0


def test_made_in_inference_mode_and_used_out_of_it():
    with torch.inference_mode():
        state = torch.zeros(1, 1, 6, 6)
        decoder = RecurrentDecoder(state, 1, feature_map="relu")
    ones = torch.ones(1, 1, 1, 6)
    for mode in (True, False):
        with torch.inference_mode(mode):
            assert decoder(ones, ones, ones[..., :5]).eq(1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_state_is_never_less_than_fp32(dtype):
    tensors = draw(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    decoder = RecurrentDecoder(torch.zeros(2, 2, 6, 6, dtype=wide), 4, feature_map="elu_plus_one")
    decoder_under_autocast = torch.autocast("cpu", dtype=torch.bfloat16)(decoder)
    found = decode(decoder_under_autocast, *tensors)
    wanted, _ = linear_attention(
        *(x.double() for x in tensors), causal=True, feature_map="elu_plus_one"
    )
    assert (found.dtype, decoder.state.dtype) == (dtype, wide)
    assert relative_error(found, wanted) < max(torch.finfo(dtype).eps, 1e-14)


def test_what_does_not_fit_is_refused():
    zeros = torch.zeros(2, 2, 6, 6)
    for state, heads, words in (
        (zeros[0], 4, "state must be"), (zeros.bfloat16(), 4, "fp32 or fp64"),
        (zeros, 3, "divide heads"), (zeros, 0, "divide heads"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            RecurrentDecoder(state, heads, feature_map="relu")
    with pytest.raises(ValueError, match="even with angles"):
        RecurrentDecoder(torch.zeros(2, 2, 5, 6), 4, feature_map="relu", turned=True)
    decoder = RecurrentDecoder(zeros, 4, feature_map="relu")
    q, k, v = (x[:, :, :1] for x in draw())
    for arguments, words in (
        ((q[:1], k, v), "must be"), ((q, k[:, :1], v), "must be"),
        ((q, k, v[..., :4]), "must be"), ((*draw(),), "must be"),
        ((q, k, v, torch.zeros(1, 1)), "with angles"), ((q.double(), k, v), "fp64"),
        ((q.clone().requires_grad_(), k, v), "no gradients"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            decoder(*arguments)
    assert decoder.state.abs().max() == 0
