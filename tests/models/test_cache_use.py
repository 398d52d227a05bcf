"""A model and a cache together: masks and positions of later calls, when there is a cache."""

import copy

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

import hf_linear_attn as hla
from tests.conftest import CAUSAL_VARIANTS, TINY
from tests.errors import relative_error
from tests.models.test_cache import ROTATIONS, filled, tokens

PADDED = [(0, 0), (4, 0), (9, 0), (2, 3)]
"""(pads before, pads after) of each row's 9 tokens; the third row is empty at first."""


def out_of_memory(*_):
    raise RuntimeError("out of memory")


def padded_prompt():
    ids, mask = tokens(4, 9), torch.ones(4, 9, dtype=torch.long)
    for row, (before, after) in enumerate(PADDED):
        mask[row, :before] = 0
        mask[row, 9 - after :] = 0
    return ids, mask


@torch.no_grad()
@pytest.mark.parametrize("position_embedding_type", ["learned", *ROTATIONS])
@pytest.mark.parametrize("later_mask", ["left out", "2-D", "4-D"])
def test_pads_of_the_prefix_stay_pads(make_decoder, later_mask, position_embedding_type):
    """With the mask or without it, later tokens see no pad and count on from the real tokens."""
    model = make_decoder(position_embedding_type=position_embedding_type)
    ids, mask = padded_prompt()
    following = tokens(4, 6)
    cache = model(input_ids=ids, attention_mask=mask).cache
    found = []
    for step in (following[:, :2], following[:, 2:3], following[:, 3:]):
        mask = torch.nn.functional.pad(mask, (0, step.shape[1]), value=1)
        given = {"left out": None, "2-D": mask}.get(later_mask)
        if later_mask == "4-D":
            given = (mask.bool()[:, None] & torch.ones(4, *[mask.shape[1]] * 2).tril().bool())[
                :, None, -step.shape[1] :
            ]
        found.append(model(input_ids=step, attention_mask=given, cache=cache).logits)
    found = torch.cat(found, 1)
    for row in range(4):
        real = torch.cat((ids[row][mask[row, :9] == 1], following[row]))[None]
        assert relative_error(found[row], model(input_ids=real).logits[0, -6:]) <= 1e-5


@torch.no_grad()
def test_new_tokens_may_be_pads_too(make_decoder):
    model = make_decoder()
    ids, mask = tokens(2, 14), torch.ones(2, 14, dtype=torch.long)
    mask[0, 5:9] = 0
    mask[1, 12:] = 0
    cache = model(input_ids=ids[:, :5], attention_mask=mask[:, :5]).cache
    model(input_ids=ids[:, 5:9], attention_mask=mask[:, :9], cache=cache)
    last = model(input_ids=ids[:, 9:], attention_mask=mask, cache=cache).logits
    first = model(input_ids=ids[0][mask[0] == 1][None]).logits[0]
    assert relative_error(last[0], first[-5:]) <= 1e-5
    second = model(input_ids=ids[1][mask[1] == 1][None]).logits[0]
    assert relative_error(last[1, :3], second[-3:]) <= 1e-5


@pytest.mark.parametrize("length", [1, 4, 5, 10, 12])
def test_masks_of_other_lengths_are_refused(make_decoder, length):
    """(fla#431) The mask covers past and new tokens: here 5 + 6, and nothing else will do."""
    model = make_decoder()
    cache = model(input_ids=tokens(2, 5)).cache
    keywords = {"input_ids": tokens(2, 6), "cache": cache}
    model(attention_mask=torch.ones(2, 11), **{**keywords, "cache": copy_of(model, 5)})
    with pytest.raises(ValueError, match=r"the cache 5 tokens: pass \(2, 11\), or None"):
        model(attention_mask=torch.ones(2, length), **keywords)


def copy_of(model, length):
    return model(input_ids=tokens(2, length)).cache


def test_pads_of_the_past_cannot_be_changed(make_decoder):
    model = make_decoder()
    mask = torch.ones(3, 8)
    with pytest.raises(ValueError, match=r"\[7, 7, 7\] real tokens where .* \[3, 7, 5\]"):
        model(input_ids=tokens(3, 1), attention_mask=mask, cache=filled(model))


def test_positions_may_be_given(make_decoder):
    model = make_decoder()
    ids = tokens(2, 12)
    wanted = model(input_ids=ids).logits
    cache = model(input_ids=ids[:, :7]).cache
    positions = torch.arange(7, 12)[None]
    found = model(input_ids=ids[:, 7:], position_ids=positions, cache=cache).logits
    assert relative_error(found, wanted[:, 7:]) <= 1e-5


def test_with_a_cache_a_restart_of_positions_is_no_document(decoder_kind, make_decoder):
    # Blocks refuse positions that fall inside a document.
    layers = {"layer_attention": "transnormer_norm"} if decoder_kind == "transnormer" else {}
    model = make_decoder(**layers)
    ids = tokens(2, 12)
    keywords = {"input_ids": ids, "position_ids": torch.arange(6).repeat(2)[None]}
    one = model(attention_mask=torch.ones_like(ids), **keywords).logits
    found = model(cache=DynamicCache(config=model.config), **keywords).logits
    assert relative_error(found, one) <= 1e-6
    packed = model(**keywords)
    assert packed.cache is None
    assert relative_error(packed.logits, one) > 1e-2


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_softmax_layers_by_any_function(make_decoder, name):
    model = make_decoder()
    ids, mask = padded_prompt()
    wanted = model(input_ids=ids, attention_mask=mask).logits[:, 5:]
    model.set_attn_implementation(name)
    cache = model(input_ids=ids[:, :5], attention_mask=mask[:, :5]).cache
    found = model(input_ids=ids[:, 5:], attention_mask=mask, cache=cache).logits
    real = mask[:, 5:] == 1
    assert relative_error(found[real], wanted[real]) <= 1e-5


def test_b38_positions_end_with_a_clear_error_in_any_piece(make_decoder):
    model = make_decoder(max_position_embeddings=16, position_embedding_type="learned")
    cache = model(input_ids=tokens(2, 15)).cache
    model(input_ids=tokens(2, 1), cache=cache)
    with pytest.raises(ValueError, match="position 16 is outside"):
        model(input_ids=tokens(2, 1), cache=cache)
    # Nothing was taken up by the call that was refused.
    assert cache.get_seq_length() == 16


def test_b38_cosformer_s_horizon_holds_with_a_cache():
    config = hla.CosformerConfig(**TINY, cos_horizon=8, position_embedding_type="none")
    model = hla.CosformerForCausalLM(config).eval()
    cache = model(input_ids=tokens(2, 7)).cache
    with pytest.raises(ValueError, match="position 8 is outside cosFormer's horizon of 8"):
        model(input_ids=tokens(2, 2), cache=cache)
    model(input_ids=tokens(2, 1), cache=cache)


def test_when_a_cache_is_returned(make_decoder):
    model = make_decoder()
    ids = tokens()[:, :8]
    assert model(input_ids=ids).cache is not None
    assert model(input_ids=ids, use_cache=False).cache is None
    assert model.train()(input_ids=ids).cache is None
    assert model(input_ids=ids, use_cache=True).cache is not None
    assert model(input_ids=ids, cache=DynamicCache(config=model.config)).cache is not None
    model = make_decoder(use_cache=False)
    assert model(input_ids=ids).cache is None
    assert model(input_ids=ids, use_cache=True).cache is not None
    assert len(model(input_ids=ids, return_dict=False)) == 1
    assert len(model(input_ids=ids, use_cache=True, return_dict=False)) == 2


def test_an_empty_cache_of_any_make_is_filled(make_decoder):
    model = make_decoder()
    ids = tokens(2, 10)
    for cache in (DynamicCache(), DynamicCache(config=model.config)):
        model(input_ids=ids[:, :6], cache=cache)
        assert cache.get_seq_length() == 6
        found = model(input_ids=ids[:, 6:], cache=cache).logits
        assert relative_error(found, model(input_ids=ids).logits[:, 6:]) <= 1e-5


def test_the_old_name_of_the_cache_is_understood(make_decoder):
    model = make_decoder()
    ids = tokens(2, 10)
    cache = model(input_ids=ids[:, :6]).cache
    with pytest.warns(FutureWarning, match="Use `cache` instead"):
        found = model(input_ids=ids[:, 6:], past_key_values=cache).logits
    assert relative_error(found, model(input_ids=ids).logits[:, 6:]) <= 1e-5


def test_caches_that_do_not_fit_are_refused(make_decoder, decoder_kind):
    model = make_decoder()
    ids = tokens(2, 4)
    for wrong in (((torch.ones(1), torch.ones(1)),), EncoderDecoderCache(DynamicCache())):
        with pytest.raises(ValueError, match=f"for one decoder; got {type(wrong).__name__}"):
            model(input_ids=ids, cache=wrong)
    other = "softmax" if decoder_kind == "linear_transformer" else "linear_transformer"
    config_class, model_class, own = CAUSAL_VARIANTS[other]
    foreign = model_class(config_class(**{**TINY, **own})).eval()(input_ids=ids).cache
    if decoder_kind != "cosformer":
        with pytest.raises(ValueError, match="made for another model"):
            model(input_ids=ids, cache=foreign)
    for mask in (None, torch.ones(2, 11)):
        with pytest.raises(ValueError, match="holds 3 rows, the input has 2"):
            model(input_ids=ids, attention_mask=mask, labels=ids, cache=filled(model))
    with pytest.raises(ValueError, match="use_cache=False"):
        model(input_ids=ids, cache=DynamicCache(config=model.config), use_cache=False)
    with pytest.raises(ValueError, match="cannot take packed documents"):
        model(input_ids=ids, seq_idx=torch.tensor([[0, 0, 1, 1]] * 2), use_cache=True)
    with pytest.raises(ValueError, match="cannot take packed documents"):
        model(input_ids=ids, cu_seq_lens_q=torch.tensor([0, 2, 4, 8]), cache=copy_of(model, 3))


def test_a_cache_left_behind_by_a_failed_call_is_refused(make_decoder):
    model = make_decoder()
    cache = copy_of(model, 4)

    def fail(*_):
        raise RuntimeError("out of memory")

    hook = model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        model(input_ids=tokens(2, 2), cache=cache)
    hook.remove()
    with pytest.raises(ValueError, match=r"different numbers of tokens \(\[4, 6\]\)"):
        model(input_ids=tokens(2, 2), cache=cache)


def test_an_encoder_has_no_cache(make_model):
    for keywords in ({"use_cache": True}, {"cache": DynamicCache()}):
        with pytest.raises(ValueError, match="an encoder and has no cache"):
            make_model()(input_ids=tokens(2, 4), **keywords)
    assert make_model().model(input_ids=tokens(2, 4)).cache is None


@pytest.mark.parametrize("kind", ["learned", "rope", "lrpe", "none"])
def test_negative_positions_are_refused_everywhere(make_decoder, kind):
    """A cache marks pads by them."""
    model = make_decoder(position_embedding_type=kind)
    with pytest.raises(ValueError, match="position -3 is negative"):
        model(input_ids=tokens(1, 12), position_ids=torch.arange(12)[None] - 3)


def test_blocks_refuse_positions_behind_those_in_the_cache():
    config = hla.TransNormerConfig(**TINY, block_size=4)
    model = hla.TransNormerForCausalLM(config).eval()
    cache = model(input_ids=tokens(2, 6)).cache
    with pytest.raises(ValueError, match=r"positions up to \[5, 5\]: blocks need positions that"):
        model(input_ids=tokens(2, 1), cache=cache, position_ids=torch.tensor([[2]]))
    model(input_ids=tokens(2, 1), cache=cache, position_ids=torch.tensor([[9]]))


def test_a_call_that_broke_off_behind_the_last_layer_s_attention_is_seen(make_decoder):
    model = make_decoder()

    with torch.no_grad():
        cache = model(input_ids=tokens(1, 6)).cache
        hook = model.model.layers[-1].mlp.register_forward_pre_hook(out_of_memory)
        with pytest.raises(RuntimeError, match="out of memory"):
            model(input_ids=tokens(1, 2), cache=cache)
        hook.remove()
        with pytest.raises(ValueError, match="broke off inside the model"):
            model(input_ids=tokens(1, 2), cache=cache)


def test_a_cache_is_copied_while_gradients_flow_through_it(make_decoder):
    """Both copies lead back to the first piece."""
    model = make_decoder()
    embeds = model.get_input_embeddings()(tokens(1, 6)).detach().requires_grad_()
    cache = model(inputs_embeds=embeds, use_cache=True).cache
    ids, grads = tokens(1, 3), []
    for taken in (copy.deepcopy(cache), cache):
        loss = model(input_ids=ids, cache=taken).logits.square().sum()
        grads.append(torch.autograd.grad(loss, embeds, retain_graph=True)[0])
    assert grads[0].abs().max() > 0
    assert relative_error(grads[0], grads[1]) <= 1e-6


def test_a_cache_reset_after_a_broken_call_is_empty(make_decoder):
    model = make_decoder()
    cache = copy_of(model, 4)
    hook = model.model.layers[-1].mlp.register_forward_pre_hook(out_of_memory)
    with pytest.raises(RuntimeError, match="out of memory"):
        model(input_ids=tokens(2, 2), cache=cache)
    hook.remove()
    cache.reset()
    ids = tokens(2, 5)
    found = model(input_ids=ids, cache=cache).logits
    assert relative_error(found, model(input_ids=ids).logits) <= 1e-6


def test_a_call_that_fails_before_anything_is_taken_up_leaves_the_cache_good(make_decoder):
    model = make_decoder()
    ids = tokens(2, 6)
    cache = model(input_ids=ids[:, :4]).cache
    hook = model.model.layers[0].register_forward_pre_hook(out_of_memory)
    with pytest.raises(RuntimeError, match="out of memory"):
        model(input_ids=ids[:, 4:], cache=cache)
    hook.remove()
    found = model(input_ids=ids[:, 4:], cache=cache).logits
    assert relative_error(found, model(input_ids=ids).logits[:, 4:]) <= 1e-5


def test_a_cache_cropped_in_part_is_refused():
    """The softmax layer gives tokens back before the state refuses to."""
    fields = {**TINY, "layer_attention": ["softmax", "linear_transformer"]}
    model = hla.LinearTransformerForCausalLM(hla.LinearTransformerConfig(**fields)).eval()
    cache = model(input_ids=tokens(2, 7)).cache
    with pytest.raises(ValueError, match="cannot give 2 tokens back"):
        cache.crop(-2)
    with pytest.raises(ValueError, match=r"different numbers of tokens \(\[5, 7\]\)"):
        model(input_ids=tokens(2, 1), cache=cache)
