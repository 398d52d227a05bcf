"""FlashAttention of the softmax layers against SDPA, on a GPU that has the package."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils import is_flash_attn_2_available

from hf_linear_attn import SoftmaxConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(not is_flash_attn_2_available(), reason="flash-attn is not installed"),
]
HEADS = {"encoder": AutoModelForMaskedLM, "decoder": AutoModelForCausalLM}


@pytest.mark.parametrize("kind", list(HEADS))
@pytest.mark.parametrize("padding", [None, "left", "right"])
def test_logits_of_flash_attention_2_are_those_of_sdpa(kind, padding):
    config = SoftmaxConfig(
        vocab_size=100, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=256, max_position_embeddings=160, initializer_range=0.1,
    )  # fmt: skip
    ids = torch.randint(4, 100, (2, 150), device="cuda")
    mask = torch.ones_like(ids)
    if padding is not None:
        mask[0, slice(0, 40) if padding == "left" else slice(110, 150)] = 0
    logits = []
    for name in ("sdpa", "flash_attention_2"):
        torch.manual_seed(0)
        model = HEADS[kind].from_config(config, attn_implementation=name)
        model = model.to("cuda", torch.bfloat16).eval()
        with torch.no_grad():
            logits.append(model(input_ids=ids, attention_mask=mask).logits[mask.bool()].double())
    sdpa, flash = logits
    assert sdpa.std() > 0.1
    assert ((flash - sdpa).norm() / sdpa.norm()).item() <= 2e-2
