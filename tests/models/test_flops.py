"""The work of a model grows with its length as its config says."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.conftest import VARIANTS


def flops(model, length):
    ids = torch.randint(3, 1000, (1, length))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids)
    return counter.get_total_flops()


def test_b45_default_configs_are_linear(variant):
    """The default attention at the default width: 512 against 2,048 tokens, 4 times the work."""
    config_class, model_class, _ = VARIANTS[variant]
    config = config_class(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=2048)
    model = model_class(config).eval()
    # The counter does not know the fused function of the CPU.
    model.set_attn_implementation("eager")
    ratio = flops(model, 2048) / flops(model, 512)
    if variant == "softmax":
        assert ratio > 5
    else:
        assert ratio <= 4.5


@pytest.mark.parametrize("name", ["transnormer_diag", "nystrom"])
def test_b45_rows_of_all_pairs_are_not_formed_in_a_padded_batch(name):
    """Work with a padding mask, which takes other ways than a full batch."""
    from hf_linear_attn.attention import build_attention

    def work(length):
        q = torch.randn(2, 2, length, 16)
        mask = torch.arange(length) < torch.tensor([[length], [length // 2]])
        with FlopCounterMode(display=False) as counter:
            build_attention(name, {})(q, q, q, causal=False, key_mask=mask)
        return counter.get_total_flops()

    assert work(2048) / work(512) <= 4.5
