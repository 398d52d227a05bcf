"""The work of a model grows with its length as its config says."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.conftest import CAUSAL_VARIANTS, VARIANTS


def flops(model, length):
    ids = torch.randint(3, 1000, (1, length))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=ids)
    return counter.get_total_flops()


def check_growth(variant, model):
    """Four times the tokens: about four times the work, but for softmax."""
    # The counter does not know the fused function of the CPU.
    model.eval().set_attn_implementation("eager")
    ratio = flops(model, 2048) / flops(model, 512)
    if variant == "softmax":
        assert ratio > 5
    else:
        assert ratio <= 4.5


def test_b45_default_configs_are_linear(variant):
    """The default attention at the default width: 512 against 2,048 tokens, 4 times the work."""
    config_class, model_class, _ = VARIANTS[variant]
    config = config_class(vocab_size=1000, num_hidden_layers=2, max_position_embeddings=2048)
    check_growth(variant, model_class(config))


@pytest.mark.parametrize("variant", [name for name in CAUSAL_VARIANTS if name != "hybrid"])
def test_b45_default_decoders_are_linear(variant):
    """Narrower than the default: there is less beside attention that could hide it."""
    config_class, model_class, _ = CAUSAL_VARIANTS[variant]
    config = config_class(
        vocab_size=1000, num_hidden_layers=2, max_position_embeddings=2048, hidden_size=128,
        num_attention_heads=2, intermediate_size=512,
    )  # fmt: skip
    check_growth(variant, model_class(config))


class Operations(TorchDispatchMode):
    """Counts the operators that run, and the numbers they make."""

    def __init__(self):
        super().__init__()
        self.count = self.made = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.count += 1
        self.made += sum(
            x.numel() for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor)
        )
        return out


@torch.no_grad()
def test_a_step_of_generation_costs_the_same_at_any_place(decoder_kind, make_decoder):
    """Four tokens, which are a block, behind 8 and behind 200; keys alone make a step longer."""
    model = make_decoder(max_position_embeddings=256)
    ids = torch.randint(3, 100, (1, 204))
    work = []
    for start in (8, 200):
        cache = model(input_ids=ids[:, :start]).cache
        with FlopCounterMode(display=False) as counter, Operations() as operations:
            for place in range(start, start + 4):
                model(input_ids=ids[:, place : place + 1], cache=cache)
        work.append((counter.get_total_flops(), operations.count, operations.made))
    if decoder_kind in ("softmax", "hybrid"):
        assert work[1][2] > 1.2 * work[0][2]
    else:
        assert work[0] == work[1]


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
