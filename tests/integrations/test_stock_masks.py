"""Masks on stock models: applied or refused, in every form they come in."""

import pytest
import torch
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    blockwise_overlay,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    packed_sequence_mask_function,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from hf_linear_attn.integrations.stock_mask_form import MaskForm, unwrapped
from hf_linear_attn.integrations.stock_masks import key_tokens, stock_mask, told_causality
from tests.integrations.stock_models import padded, run, stock_model, tokens

LEFT = padded(tokens(2, 10), 4, 0)


def logits(kind, model, mask):
    ids, _, positions = LEFT
    with torch.no_grad():
        return run(kind, model, ids, mask, positions)[:, 4:]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_b17_one_mask_in_every_form(kind):
    model, mask = stock_model(kind, "cosformer"), LEFT[1]
    expected = logits(kind, model, mask)
    for dtype in (torch.bool, torch.int64, torch.float32):
        torch.testing.assert_close(logits(kind, model, mask.to(dtype)), expected, atol=0, rtol=0)
    pairs = mask.bool()[:, None, None, :].expand(-1, -1, 14, -1)
    if kind == "gpt2":
        pairs = pairs.tril()
    additive = torch.zeros(pairs.shape).masked_fill(~pairs, torch.finfo(torch.float32).min)
    for form in (pairs, additive, additive.clamp_min(-1e9)):
        torch.testing.assert_close(logits(kind, model, form), expected, atol=1e-6, rtol=1e-6)
    with torch.no_grad():
        unmasked = run(kind, model, LEFT[0])[:, 4:]
    assert (unmasked - expected).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_b17_one_more_hole_is_an_error(kind):
    model, mask = stock_model(kind, "linear_transformer"), LEFT[1]
    pairs = mask.bool()[:, None, None, :].expand(-1, -1, 14, -1).clone()
    if kind == "gpt2":
        pairs = pairs.tril()
    pairs[0, 0, 12, 7] = False
    with pytest.raises(ValueError, match="row 0 token 12 may not see token 7"):
        logits(kind, model, pairs)
    bias = torch.zeros(pairs.shape)
    bias[..., 3] = 0.5
    with pytest.raises(ValueError, match="cannot add a bias"):
        logits(kind, model, bias)


def test_b17_a_causal_mask_for_an_encoder_is_an_error():
    model = stock_model("bert", "cosformer")
    pairs = torch.ones(2, 1, 14, 14, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match="padding alone"):
        logits("bert", model, pairs)


def make(function, length=9, **given):
    """Rows of the mask that is made, and what it says they are."""
    mask = stock_mask(
        batch_size=2, q_length=length, kv_length=length, mask_function=function, **given
    )
    return unwrapped(mask)


def test_masks_stay_as_long_as_their_rows_and_say_what_was_asked_for():
    mask, full = LEFT[1].bool(), torch.ones(2, 9).bool()
    assert make(causal_mask_function) == (None, MaskForm(True))
    assert make(bidirectional_mask_function, attention_mask=full) == (None, MaskForm(False))
    rows, form = make(causal_mask_function, 14, attention_mask=mask)
    assert torch.equal(rows, mask)
    assert form == MaskForm(True)


def test_documents_are_seen_in_the_mask_function():
    documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2], [0] * 8 + [1]])
    for causal, plain in ((True, causal_mask_function), (False, bidirectional_mask_function)):
        rows, form = make(and_masks(plain, packed_sequence_mask_function(documents)))
        assert rows.tolist() == (documents + 1).tolist()
        assert form == MaskForm(causal, documents=True)
        one = and_masks(plain, packed_sequence_mask_function(documents * 0))
        assert make(one) == (None, MaskForm(causal))
    # One block in which all see each other is no causal mask, whatever it was begun with.
    block = or_masks(causal_mask_function, blockwise_overlay(torch.zeros(2, 9)))
    assert make(block) == (None, MaskForm(False))


def test_a_mask_of_a_user_is_never_taken_for_one_that_was_made():
    pairs = torch.ones(2, 1, 9, 9).tril()
    for mask in (pairs, pairs.bool(), pairs.bool()[:, :, :1], torch.ones(2, 2, 1, 9)):
        assert unwrapped(mask) is None
        assert told_causality(mask[:, :, :1], 9) is False
    assert told_causality(pairs, 9) is None
    with pytest.raises(ValueError, match="must be bool"):
        key_tokens(pairs.int(), 2, 9, 9, causal=True, crossed=False)


def every_other(batch, head, query, key):
    return (query - key) % 2 == 0


@pytest.mark.parametrize(
    "function",
    [
        sliding_window_causal_mask_function(4),
        sliding_window_bidirectional_mask_function(3),
        # The first token of a chunk sees no one before: documents, but for the padding.
        and_masks(causal_mask_function, lambda b, h, q, k: (k > 0) | (q == 0) | (q > 5)),
        every_other,
        lambda b, h, q, k: (k <= q) | ((q < 4) & (k < 4)),
    ],
)
def test_other_patterns_are_marked_and_refused_where_used(function):
    mask = stock_mask(batch_size=2, q_length=9, kv_length=9, mask_function=function)
    assert unwrapped(mask) == (None, MaskForm(False, other=True))
    with pytest.raises(ValueError, match="attends by a pattern of its own"):
        key_tokens(mask, 2, 9, 9, causal=True, crossed=False)


def test_chunks_alone_are_documents():
    chunks = chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.long))
    assert make(chunks)[0][0].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert make(chunks, local_size=3)[1].other


def test_a_pattern_handed_on_as_attention_mask_is_still_refused():
    pattern = stock_mask(
        batch_size=1, q_length=9, kv_length=9, mask_function=every_other, use_vmap=True
    )
    with pytest.raises(ValueError, match="attends by a pattern of its own"):
        stock_model("gpt2", "cosformer")(tokens(1, 9), attention_mask=pattern)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(1, 1, 9\); accepted"):
        stock_model("bert", "cosformer")(tokens(1, 9), attention_mask=torch.ones(1, 1, 9))


def test_cross_attention_reads_masks_of_four_dimensions():
    model, ids = stock_model("bart", "cosformer"), tokens(2, 9)
    wide, mask, _ = padded(ids, 0, 4)
    with torch.no_grad():
        expected = model(wide, attention_mask=mask, decoder_input_ids=ids).logits
        alone = model(ids, decoder_input_ids=ids).logits
        found = model(wide, attention_mask=mask.bool()[:, None, None], decoder_input_ids=ids).logits
    torch.testing.assert_close(expected, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, expected, atol=0, rtol=0)
    pairs = mask.bool()[:, None, None].expand(-1, -1, 13, -1).clone()
    pairs[0, 0, 3, 2] = False
    with pytest.raises(ValueError, match="may not see token 2"):
        model(wide, attention_mask=pairs, decoder_input_ids=ids)
    memory = (torch.randn(2, 13, 32),)
    with pytest.raises(ValueError, match="cross-attention must be padding alone"):
        model(encoder_outputs=memory, attention_mask=pairs, decoder_input_ids=wide)


def test_keys_of_no_tokens_are_refused():
    with pytest.raises(ValueError, match="prefix tuning"):
        make(bidirectional_mask_function, q_offset=4)
    with pytest.raises(ValueError, match="offers 9 keys, 11 tokens were seen"):
        make(causal_mask_function, q_offset=2)
    with pytest.raises(ValueError, match="offers 9 keys, 9 tokens were seen"):
        make(causal_mask_function, kv_offset=3)


def test_a_static_cache_is_refused_in_a_graph_too(monkeypatch):
    """There the offset is a tensor, whose value the graph must not ask for."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ValueError, match="a graph cannot look which"):
        make(causal_mask_function, q_offset=torch.tensor(0))


def test_a_mask_of_another_length_is_refused():
    model = stock_model("gpt2", "cosformer")
    for use_cache in (True, False):
        with pytest.raises(ValueError, match=r"shape \(2, 11\); accepted: \(2, 9\)"):
            model(tokens(2, 9), attention_mask=torch.ones(2, 11), use_cache=use_cache)
    with pytest.raises(ValueError, match=r"mask of shape \(2, 11\)"):
        stock_model("bert", "cosformer")(tokens(2, 9), attention_mask=torch.ones(2, 11))
