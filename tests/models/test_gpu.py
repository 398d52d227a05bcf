"""Models on a GPU: what is refused there is one clear error, too, and leaves the device usable."""

import pytest
import torch

import hf_linear_attn as hla
from tests.conftest import TINY

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position_embedding_type": "learned"}, "32 positions"),
        ({"position_embedding_type": "none", "cos_horizon": 32}, "cosFormer's horizon of 32"),
    ],
)
def test_b38_positions_end_with_a_clear_error(fields, message):
    model = hla.CosformerForMaskedLM(hla.CosformerConfig(**{**TINY, **fields})).cuda().eval()
    ids = torch.randint(3, 100, (2, 33), device="cuda")
    with pytest.raises(ValueError, match=message):
        model(input_ids=ids)
    # An assertion of the device would have ended its context.
    assert torch.isfinite(model(input_ids=ids[:, :32]).logits).all()
