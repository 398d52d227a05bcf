"""A mechanism of the block-window kind, made for the test, in a decoder: its cache and generation.

Blocks are counted in positions; the state holds the values of the current block and nothing else.
"""

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn import register_attention
from hf_linear_attn.attention import ATTENTION, Attention
from hf_linear_attn.models.cache import WindowLayer
from tests.conftest import TINY
from tests.errors import relative_error

BLOCK = 4


class BlockMean(Attention):
    """o_i = mean of the values of its block up to token i, one token at a time."""

    cache_kind = "block window"
    uses_positions = True

    def attend(self, query, key, value, tokens, state):
        batch, groups, length, width = value.shape
        block = value.new_zeros(batch, groups, BLOCK, width) if state is None else state
        out = []
        for t in range(length):
            slot = tokens.query_positions.expand(batch, -1)[:, t] % BLOCK
            here = torch.nn.functional.one_hot(slot, BLOCK)[:, None, :, None].bool()
            begins = (slot == 0)[:, None, None, None]
            new = torch.where(here, value[:, :, t : t + 1], torch.where(begins, 0, block))
            real = torch.ones_like(begins)
            if tokens.key_mask is not None:
                real = tokens.key_mask[:, t][:, None, None, None]
            block = torch.where(real, new, block)
            out.append(block.sum(2) / (slot[:, None, None] + 1))
        heads = query.shape[1] // groups
        return torch.stack(out, 2).repeat_interleave(heads, 1), block.float()


@pytest.fixture
def model():
    register_attention("block_mean", BlockMean)
    layers = ["block_mean", "linear_transformer"]
    config = hla.LinearTransformerConfig(**{**TINY, "layer_attention": layers})
    yield hla.LinearTransformerForCausalLM(config).eval()
    del ATTENTION["block_mean"]


@torch.no_grad()
def test_b19_splits_and_padding(model):
    ids = torch.randint(3, 100, (2, 14))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    whole = model(input_ids=ids, attention_mask=mask)
    assert isinstance(whole.cache.layers[0], WindowLayer)
    assert whole.cache.layers[0].state.shape == (2, 2, BLOCK, 16)
    alone = model(input_ids=ids[:1, 5:]).logits
    assert relative_error(whole.logits[0, 5:], alone[0]) <= 1e-5
    for cut in range(1, 14):
        cache = model(input_ids=ids[:, :cut], attention_mask=mask[:, :cut]).cache
        found = model(input_ids=ids[:, cut:], attention_mask=mask, cache=cache).logits
        real = mask[:, cut:] == 1
        assert relative_error(found[real], whole.logits[:, cut:][real]) <= 1e-5


def test_b20_beams(model):
    ids = torch.randint(3, 100, (2, 7))
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    cached, plain = (
        model.generate(
            ids, attention_mask=mask, num_beams=3, max_new_tokens=10, min_new_tokens=10,
            use_cache=use_cache,
        )
        for use_cache in (True, False)
    )  # fmt: skip
    assert torch.equal(cached, plain)
