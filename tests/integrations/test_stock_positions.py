"""Positions on stock models: of the queries of cross-attention, and packed rows without a mask."""

import pytest
import torch
from transformers import DataCollatorWithFlattening

import hf_linear_attn as hla
from hf_linear_attn.integrations.attention_interface import stock_attention
from hf_linear_attn.integrations.stock_positions import noted_queries
from tests.integrations.stock_models import padded, stock_model, tokens

MEMORY = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(1))


def crossed(seed=0):
    return stock_model("gpt2", "cosformer", seed=seed, add_cross_attention=True)


def test_cross_attention_behind_a_state_knows_its_positions():
    model, (ids, mask, _) = crossed(), padded(tokens(2, 9), 2, 0)
    given = {"encoder_hidden_states": MEMORY, "attention_mask": mask}
    with torch.no_grad():
        whole = model(ids, use_cache=False, **given).logits[:, 2:]
        for ends in ((11,), (5, 11), range(3, 12)):
            model(ids, use_cache=False, **given)  # what it noted is no longer true
            cache, parts, begin = hla.LinearStateCache(model.config), [], 0
            for end in ends:
                now = given | {"attention_mask": mask[:, :end]}
                parts.append(model(ids[:, begin:end], cache=cache, **now).logits)
                begin = end
            found = torch.cat(parts, 1)[:, 2:]
            torch.testing.assert_close(found, whole, atol=1e-4, rtol=1e-4)


def test_a_decoder_with_a_memory_generates_the_same_with_either_cache():
    model, ids = crossed(), tokens(2, 5)
    steps = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 1, "output_logits": True,
             "return_dict_in_generate": True, "encoder_hidden_states": MEMORY}  # fmt: skip
    expected = torch.stack(model.generate(ids, use_cache=False, **steps).logits)
    for given in ({}, {"cache": hla.LinearStateCache(model.config)}):
        found = torch.stack(model.generate(ids, **given, **steps).logits)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_positions_that_were_noted_are_used_once_and_by_their_model():
    model, other, ids = crossed(), crossed(seed=1), tokens(2, 5)
    x, memory = torch.randn(2, 2, 5, 16), torch.randn(2, 2, 6, 16)

    def attend(part, key):
        return stock_attention("cosformer", part, x, key, key, None)[0]

    first, cross = model.transformer.h[0].attn, model.transformer.h[0].crossattention
    attend(first, x)
    attend(cross, memory)
    with pytest.raises(ValueError, match="no causal self-attention of the same layer"):
        attend(cross, memory)
    attend(first, x)
    with pytest.raises(ValueError, match="no causal self-attention of the same layer"):
        attend(other.transformer.h[0].crossattention, memory)
    with pytest.raises(ValueError, match="no causal self-attention of the same layer"):
        attend(cross, memory)
    fewer = x[:, :, :4]
    stock_attention("cosformer", first, fewer, fewer, fewer, None)
    with pytest.raises(ValueError, match="no causal self-attention of the same layer"):
        attend(cross, memory)
    model(ids, encoder_hidden_states=MEMORY)
    with pytest.raises(ValueError, match="no causal self-attention of the same layer"):
        noted_queries(model.config, x)


PACKED = torch.cat((torch.arange(4), torch.arange(5)))[None]


@pytest.mark.parametrize(("kind", "name"), [("gpt2", "cosformer"), ("llama", "transnormer_diag")])
def test_packed_rows_are_kept_apart_or_refused(kind, name):
    model, ids = stock_model(kind, name), tokens(2, 9)
    with torch.no_grad():
        apart = torch.cat([model(x).logits for x in (ids[:, :4], ids[:, 4:])], 1)
        found = model(ids, position_ids=PACKED, use_cache=False).logits
    torch.testing.assert_close(found, apart, atol=1e-5, rtol=1e-5)
    named = {"seq_idx": (torch.arange(9) > 3).int()[None].expand(2, -1), "position_ids": PACKED}
    with torch.no_grad():
        found = model(ids, use_cache=False, attention_mask=torch.ones_like(ids), **named).logits
    torch.testing.assert_close(found, apart, atol=1e-5, rtol=1e-5)
    for given in (
        {},
        {"cache": hla.LinearStateCache(model.config)},
        {"use_cache": False, "attention_mask": torch.ones_like(ids)},
    ):
        with pytest.raises(ValueError, match=r"position_ids restart within a row.*use_cache=False"):
            model(ids, position_ids=PACKED, **given)


def test_what_the_flattening_collator_makes_needs_use_cache_false():
    rows = [[5, 6, 7, 8, 9], [10, 11, 12, 13]]
    batch = DataCollatorWithFlattening()([{"input_ids": row} for row in rows])
    model = stock_model("gpt2", "cosformer")
    with pytest.raises(ValueError, match="position_ids restart within a row"):
        model(**batch)
    with torch.no_grad():
        found = model(**batch, use_cache=False).logits
        apart = torch.cat([model(torch.tensor([row])).logits for row in rows], 1)
    torch.testing.assert_close(found, apart, atol=1e-5, rtol=1e-5)


def test_only_positions_of_real_tokens_count_as_restarts():
    model, (ids, mask, _) = stock_model("gpt2", "cosformer"), padded(tokens(2, 6), 3, 2)
    counted = mask.cumsum(1) - 1
    mask[:, 5] = 0  # a hole, too
    with torch.no_grad():
        expected = model(ids, attention_mask=mask, position_ids=counted.clamp_min(0)).logits
        for fill in (0, 1, 7):
            filled = counted.masked_fill(mask == 0, fill)
            found = model(ids, attention_mask=mask, position_ids=filled).logits
            real = mask.bool()
            torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
    wrong = counted.masked_fill(mask == 0, 9)
    wrong[1, 7] = wrong[1, 6]
    with pytest.raises(ValueError, match="position_ids restart"):
        model(ids, attention_mask=mask, position_ids=wrong)


@pytest.mark.slow
def test_a_graph_asserts_that_packed_rows_are_known_to_the_mask():
    model, ids = stock_model("gpt2", "cosformer"), tokens(1, 9)
    torch._dynamo.reset()
    graph = torch.compile(model, backend="eager", fullgraph=True)
    mask = torch.ones_like(ids)
    with torch.no_grad():
        expected = model(ids, use_cache=False, attention_mask=mask).logits
        plain = torch.arange(9)[None]
        found = graph(ids, use_cache=False, attention_mask=mask, position_ids=plain).logits
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
        with pytest.raises(RuntimeError, match="position_ids restart within a row"):
            graph(ids, use_cache=False, attention_mask=mask, position_ids=PACKED)
        found = graph(ids, use_cache=False, position_ids=PACKED).logits
        expected = model(ids, use_cache=False, position_ids=PACKED).logits
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
