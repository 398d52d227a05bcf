"""Names of mechanisms."""

import pytest
import torch

from hf_linear_attn import CosformerConfig, CosformerModel, register_attention
from hf_linear_attn.attention import ATTENTION, Attention, build_attention, get_attention


class MeanAttention(Attention):
    """The mean of all values."""

    cache_kind = "full keys"

    def attend(self, query, key, value, tokens, state):
        return value.mean(2, keepdim=True).expand(-1, -1, query.shape[2], -1), None


@pytest.fixture
def registered():
    register_attention("mean_of_values", MeanAttention)
    yield "mean_of_values"
    del ATTENTION["mean_of_values"]


def test_a_mechanism_of_one_s_own_runs_in_a_model(registered):
    config = CosformerConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, layer_attention=["cosformer", registered],
    )  # fmt: skip
    model = CosformerModel(config)
    assert isinstance(model.layers[1].self_attn.mechanism, MeanAttention)
    assert model(input_ids=torch.tensor([[5, 6, 7]])).last_hidden_state.shape == (1, 3, 16)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'cosformer'"):
        get_attention("cosfromer")


def test_an_unknown_field_gets_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'cos_horizon'"):
        build_attention("cosformer", {"cos_horizn": 3})


@pytest.mark.parametrize(
    ("name", "mechanism", "message"),
    [
        ("Mean-Attention", MeanAttention, "lower-case identifier"),
        ("softmax", MeanAttention, "taken"),
        ("mean_of_values", dict, "subclass"),
    ],
)
def test_bad_registrations_are_refused(name, mechanism, message):
    with pytest.raises(ValueError, match=message):
        register_attention(name, mechanism)
    assert ATTENTION.get(name) is not mechanism
