"""Models on a GPU: errors are clear there, too, and leave it usable; caches can be offloaded."""

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.models.cache import KeysLayer
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


@pytest.mark.parametrize("ways", [{}, {"num_beams": 3}])
def test_offloaded_caches_give_the_same_tokens(make_decoder, ways):
    model = make_decoder().cuda()
    ids = torch.randint(3, 100, (2, 7), device="cuda")
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    wanted, found = (
        model.generate(
            ids, attention_mask=mask, max_new_tokens=12, min_new_tokens=12, do_sample=False,
            cache_implementation=kind, return_dict_in_generate=True, **ways,
        )
        for kind in ("dynamic", "offloaded")
    )  # fmt: skip
    assert torch.equal(found.sequences, wanted.sequences)
    assert found.cache.offloading
    keys = [layer.keys for layer in found.cache.layers if isinstance(layer, KeysLayer)]
    # The first layer's are fetched for the next token while the last one is read.
    assert all(x.device.type == "cpu" for x in keys[1:])
