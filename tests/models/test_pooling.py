"""Which tokens a pooled head reads: real ones, whichever side is padded."""

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.models.pooling import pool, real_tokens
from tests.conftest import TINY
from tests.errors import relative_error
from tests.models.task_models import IS_DECODER, batch, build

POOLINGS = ["first", "last", "mean"]
PAD = 1


def padded(tensor, pads, side, value):
    ends = (pads, 0) if side == "left" else (0, pads)
    if tensor.ndim == 3:
        ends = (0, 0, *ends)
    return torch.nn.functional.pad(tensor, ends, value=value)


@pytest.mark.parametrize("is_decoder", IS_DECODER)
@pytest.mark.parametrize("pooling", [*POOLINGS, None])
def test_b18_the_same_sentence_gives_the_same_class_whichever_side_is_padded(
    variant, pooling, is_decoder
):
    model = build(variant, "SequenceClassification", is_decoder=is_decoder, pooling=pooling)
    ids = torch.tensor([[5, 17, PAD, 40, 8, PAD, 63, 21]])
    plain = model(input_ids=ids).logits
    embeds = model.get_input_embeddings()(ids).detach()
    for side in ("right", "left"):
        mask = padded(torch.ones_like(ids), 4, side, 0)
        found = model(input_ids=padded(ids, 4, side, PAD), attention_mask=mask).logits
        assert relative_error(found, plain) <= 1e-5, side
        wide = padded(embeds, 4, side, 3.0)
        found = model(inputs_embeds=wide, attention_mask=mask).logits
        assert relative_error(found, plain) <= 1e-5, side
    # Both in one batch, also under a mask of four dimensions.
    rows = torch.cat([padded(ids, 4, side, PAD) for side in ("right", "left")])
    masks = torch.cat([padded(torch.ones_like(ids), 4, side, 0) for side in ("right", "left")])
    wide = masks.bool()[:, None, None].expand(2, 1, 12, 12)
    wide = wide.tril() if is_decoder else wide
    for mask in (masks, wide):
        found = model(input_ids=rows, attention_mask=mask).logits
        assert relative_error(found, plain.expand(2, -1)) <= 1e-5
    other = torch.where(ids == 63, 64, ids)
    if pooling != "first" or not is_decoder:
        assert relative_error(model(input_ids=other).logits, plain) > 1e-3


@pytest.mark.parametrize("is_decoder", IS_DECODER)
def test_the_default_is_the_first_token_of_encoders_and_the_last_of_decoders(variant, is_decoder):
    model = build(variant, "SequenceClassification", is_decoder=is_decoder)
    assert model.config.pooling == ("last" if is_decoder else "first")
    ids = batch("SequenceClassification")["input_ids"]
    x = model.model(input_ids=ids).last_hidden_state
    pooled = x[:, -1] if is_decoder else torch.tanh(model.classifier.dense(x[:, 0]))
    expected = model.classifier.out_proj(pooled)
    assert relative_error(model(input_ids=ids).logits, expected) <= 1e-6


MASK = torch.tensor([[0, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_pooled_vector_by_hand(pooling):
    x = torch.randn(3, 6, 4)
    expected = {
        "first": torch.stack((x[0, 1], x[1, 0], torch.zeros(4))),
        "last": torch.stack((x[0, 4], x[1, 5], torch.zeros(4))),
        "mean": torch.stack(((x[0, 1] + x[0, 2] + x[0, 4]) / 3, x[1].mean(0), torch.zeros(4))),
    }[pooling]
    assert torch.allclose(pool(x, MASK, pooling), expected, atol=1e-6)
    assert torch.equal(pool(x, None, pooling), pool(x, torch.ones(3, 6).bool(), pooling))


def test_pads_do_not_reach_the_mean_even_as_nan_and_the_sum_is_not_in_half_precision():
    x = torch.full((1, 4096, 2), 100.0, dtype=torch.float16)
    x[0, -1] = torch.nan
    mask = torch.ones(1, 4096).bool()
    mask[0, -1] = False
    assert torch.equal(pool(x, mask, "mean"), torch.full((1, 2), 100.0, dtype=torch.float16))


def test_b18_without_a_mask_a_pad_id_inside_the_text_is_a_token():
    ids = torch.tensor([[5, 7, PAD, 9, PAD, PAD], [PAD, PAD, 4, PAD, 6, 8], [PAD] * 6])
    config, without = (hla.SoftmaxConfig(**TINY, pad_token_id=i) for i in (PAD, None))
    found = real_tokens(ids, None, config, (3, 6))
    assert found.int().tolist() == [[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [0] * 6]
    assert real_tokens(ids, None, without, (3, 6)) is None
    assert real_tokens(None, None, config, (3, 6)) is None
    # A mask is believed, whatever the ids say.
    mask = torch.tensor([[1, 1, 1, 1, 1, 0]] * 3)
    assert torch.equal(real_tokens(ids, mask, config, (3, 6)), mask.bool())


@pytest.mark.parametrize("pooling", POOLINGS)
def test_without_a_mask_the_trunk_s_states_of_the_text_are_pooled(variant, pooling):
    model = build(variant, "SequenceClassification", pooling=pooling)
    ids = torch.tensor([[5, 7, PAD, 9, PAD, PAD], [PAD, 4, PAD, 6, 8, 3]])
    x = model.model(input_ids=ids).last_hidden_state
    rows = {
        "first": torch.stack((x[0, 0], x[1, 1])),
        "last": torch.stack((x[0, 3], x[1, 5])),
        "mean": torch.stack((x[0, :4].mean(0), x[1, 1:].mean(0))),
    }[pooling]
    head = model.classifier
    expected = head.out_proj(torch.tanh(head.dense(rows)))
    assert relative_error(model(input_ids=ids).logits, expected) <= 1e-5


def test_b18_a_pad_id_that_is_set_on_the_model_is_used():
    model = build("softmax", "SequenceClassification", pooling="last", pad_token_id=None)
    ids = torch.tensor([[5, 7, 9, 90], [4, 90, 90, 90]])
    with pytest.raises(ValueError, match="no pad_token_id"):
        model(input_ids=ids)
    model.config.pad_token_id = 90
    x = model.model(input_ids=ids).last_hidden_state
    pooled = torch.stack((x[0, 2], x[1, 0]))
    expected = model.classifier.out_proj(torch.tanh(model.classifier.dense(pooled)))
    assert relative_error(model(input_ids=ids).logits, expected) <= 1e-6


@pytest.mark.parametrize("is_decoder", IS_DECODER)
@pytest.mark.parametrize("head", ["SequenceClassification", "MultipleChoice"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_b18_a_batch_whose_pads_nobody_can_tell_is_refused(head, pooling, is_decoder):
    settings = {"pooling": pooling, "is_decoder": is_decoder}
    model = build("softmax", head, pad_token_id=None, **settings)
    ids = batch(head)["input_ids"]
    embeds = model.get_input_embeddings()(ids)
    known = build("softmax", head, **settings)
    ones = torch.ones_like(ids)
    assert torch.isfinite(model(input_ids=ids, attention_mask=ones).logits).all()
    assert torch.isfinite(known(inputs_embeds=embeds, attention_mask=ones).logits).all()
    if pooling == "first":
        assert torch.isfinite(model(input_ids=ids).logits).all()
        assert torch.isfinite(known(inputs_embeds=embeds).logits).all()
        return
    with pytest.raises(
        ValueError, match=r"must know the pads.*no pad_token_id\. Pass attention_mask"
    ):
        model(input_ids=ids)
    with pytest.raises(ValueError, match=r"they are embeddings\. Pass attention_mask"):
        known(inputs_embeds=embeds)
    if head == "SequenceClassification":
        assert torch.isfinite(model(input_ids=ids[:1]).logits).all()
        assert torch.isfinite(known(inputs_embeds=embeds[:1]).logits).all()
