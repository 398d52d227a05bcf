"""generate on stock decoders: with an ordinary cache and with one of constant size = without."""

import copy

import pytest
import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    DynamicCache,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

import hf_linear_attn as hla
from tests.integrations.stock_models import (
    CAUSAL,
    DECODERS,
    KERNELIZED,
    NO_DROPOUT,
    SIZES,
    padded,
    stock_model,
    tokens,
)
from tests.reference import REFERENCES

STEPS = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 1, "output_logits": True,
         "return_dict_in_generate": True}  # fmt: skip


def prompt():
    """Two rows, one with pads on its left."""
    ids, mask, _ = padded(tokens(1, 5), 4, 0)
    return {
        "input_ids": torch.cat((tokens(1, 9, seed=2), ids)),
        "attention_mask": torch.cat((torch.ones_like(mask), mask)),
    }


def generated(model, **given):
    out = model.generate(**prompt(), **STEPS | given)
    return out.sequences, torch.stack(out.logits)


def caches(model):
    return {"ordinary": {}, "constant": {"cache": hla.LinearStateCache(model.config)}}


@pytest.mark.parametrize(("kind", "name"), DECODERS)
def test_greedy_with_either_cache_is_greedy_without(kind, name):
    model = stock_model(kind, name)
    text, expected = generated(model, use_cache=False)
    for which, given in caches(model).items():
        found, logits = generated(model, **given)
        assert found.tolist() == text.tolist(), which
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    # Left padding changes nothing here either.
    lone = model.generate(prompt()["input_ids"][1:, 4:], **STEPS, cache=given_cache(model))
    torch.testing.assert_close(torch.stack(lone.logits)[:, 0], expected[:, 1], atol=1e-4, rtol=1e-4)


def given_cache(model):
    return hla.LinearStateCache(model.config)


@pytest.mark.parametrize(("kind", "name"), [("gpt2", "cosformer"), ("llama", "transnormer_diag")])
def test_beams_and_pieces_of_the_prompt(kind, name):
    model = stock_model(kind, name)
    for given in ({"num_beams": 3}, {"prefill_chunk_size": 4}):
        plain = {k: v for k, v in given.items() if k != "prefill_chunk_size"}
        text, expected = generated(model, use_cache=False, **plain)
        for which, cache in caches(model).items():
            found, logits = generated(model, **given, **cache)
            assert found.tolist() == text.tolist(), (given, which)
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
def test_any_split_with_the_state_carried_on_is_the_whole(name):
    model, ids = stock_model("gpt2", name), tokens(2, 14)
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        for ends in ((1, 14), (5, 9, 14), (8, 14)):
            cache, parts, begin = given_cache(model), [], 0
            for end in ends:
                parts.append(model(ids[:, begin:end], cache=cache).logits)
                begin = end
            torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-4, rtol=1e-4)


def stored_bytes(cache):
    held = 0
    for layer in cache.layers:
        held += sum(x.numel() * x.element_size() for x in (layer.state, *layer.seen))
        assert layer.keys is None
        assert layer.values is None
    return held


@pytest.mark.parametrize(
    ("kind", "name"), [("gpt2", "linear_transformer"), ("llama", "transnormer_diag")]
)
def test_a_cache_does_not_grow(kind, name):
    model, sizes = stock_model(kind, name, max_position_embeddings=1024), {}
    for length in (10, 1000):
        cache = given_cache(model)
        with torch.no_grad():
            model(tokens(1, length), cache=cache)
            model(tokens(1, 1, seed=4), cache=cache)
        sizes[length] = stored_bytes(cache)
        assert cache.get_seq_length() == length + 1
    assert sizes[10] == sizes[1000]
    heads = 4 if kind == "llama" else 2
    width = (8 + 8 + 1) * 2 if kind == "llama" else 16 * 17
    assert sizes[10] <= 2 * (heads * 4 * width * 4 + 2 * 8)


@pytest.mark.parametrize("name", ["cosformer", "transnormer_diag"])
def test_rows_of_a_cache_move_as_rows_do(name):
    model, ids = stock_model("gpt2", name), tokens(3, 7)
    following = tokens(3, 2, seed=8)
    with torch.no_grad():
        whole = model(torch.cat((ids, following), 1), use_cache=False).logits[:, 7:]
        cache = given_cache(model)
        model(ids, cache=cache)
        order = torch.tensor([2, 0, 0])
        moved, kept = copy.deepcopy(cache), copy.deepcopy(cache)
        moved.reorder_cache(order)
        again = torch.cat((ids[order], following), 1)
        expected = model(again, use_cache=False).logits[:, 7:]
        found = model(following, cache=moved).logits
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        kept.batch_repeat_interleave(2)
        found = model(following.repeat_interleave(2, 0), cache=kept).logits
        torch.testing.assert_close(found[::2], whole, atol=1e-4, rtol=1e-4)
        kept.batch_select_indices(torch.tensor([1, 3]))
        assert kept.layers[0].state.shape[0] == 2
        cache.reset()
        assert cache.get_seq_length() == 0
        found = model(torch.cat((ids, following), 1), cache=cache).logits[:, 7:]
        torch.testing.assert_close(found, whole, atol=1e-4, rtol=1e-4)


def test_bart_generates_the_same_with_its_caches():
    for name in KERNELIZED:
        model = stock_model("bart", name)
        for given in ({}, {"num_beams": 2}):
            text, expected = generated(model, use_cache=False, **given)
            found, logits = generated(model, **given)
            assert found.tolist() == text.tolist(), (name, given)
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_an_encoder_and_a_decoder_of_two_configs():
    sizes = SIZES | NO_DROPOUT
    encoder = BertConfig(**sizes)
    decoder = BertConfig(**sizes, is_decoder=True, add_cross_attention=True)
    for config in (encoder, decoder):
        config.cos_horizon = 24
    both = EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    both.decoder_start_token_id, both.pad_token_id = 2, 1
    model = EncoderDecoderModel._from_config(both, attn_implementation="cosformer").eval()
    text, expected = generated(model, use_cache=False)
    found, logits = generated(model)
    assert found.tolist() == text.tolist()
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_queries_already_scaled_by_the_model():
    config = OPTConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=40,
        max_position_embeddings=48, word_embed_proj_dim=32, pad_token_id=1, init_std=0.3,
    )  # fmt: skip
    model = OPTForCausalLM._from_config(config, attn_implementation="cosformer").eval()
    text, expected = generated(model, use_cache=False)
    for given in caches(model).values():
        found, logits = generated(model, **given)
        assert found.tolist() == text.tolist()
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


# What a cache of constant size cannot be used for.


def test_a_state_cannot_be_cropped():
    model = stock_model("gpt2", "cosformer")
    cache = given_cache(model)
    model(tokens(1, 5), cache=cache)
    cache.crop(0)
    with pytest.raises(ValueError, match="cannot give 2 tokens back"):
        cache.crop(-2)


def test_configs_without_a_state_are_refused():
    with pytest.raises(ValueError, match="the config has 'eager'"):
        hla.LinearStateCache(stock_model("gpt2", "eager").config)
    with pytest.raises(ValueError, match="the config has None"):
        hla.LinearStateCache(GPT2Config())
    with pytest.raises(ValueError, match="decoders alone"):
        hla.LinearStateCache(stock_model("bart", "cosformer").config)
    with pytest.raises(ValueError, match="no causal form"):
        hla.LinearStateCache(stock_model("bert", "nystrom").config)


def test_a_cache_of_another_model_is_refused():
    model, ids = stock_model("gpt2", "cosformer"), tokens(1, 5)
    other = stock_model("gpt2", "cosformer", n_head=4)
    with pytest.raises(ValueError, match="num_attention_heads is 4 there and 2 here"):
        model(ids, cache=given_cache(other))
    other = stock_model("gpt2", "linear_transformer")
    with pytest.raises(ValueError, match="attn_implementation is 'linear_transformer' there"):
        model(ids, cache=given_cache(other))


def test_another_horizon_is_another_model():
    model, ids = stock_model("gpt2", "cosformer"), tokens(1, 5)
    cache = given_cache(model)
    model(ids, cache=cache)
    model.config.cos_horizon = 30
    with pytest.raises(ValueError, match=r"attention is \{'cos_horizon': 24\} there"):
        model(ids[:, :1], cache=cache)


def test_a_state_that_nobody_takes_is_noticed():
    """Another implementation would attend to the new tokens alone."""
    ids = tokens(1, 6)
    model, softmax = stock_model("gpt2", "cosformer"), stock_model("gpt2", "sdpa")
    for filled in (False, True):
        cache = given_cache(model)
        if filled:
            model(ids, cache=cache)
        with pytest.raises(ValueError, match="no attention of this package took its state"):
            softmax(ids[:, :1], cache=cache)


def test_a_model_that_was_changed_since_is_noticed_in_its_only_layer():
    ids, model = tokens(1, 6), stock_model("gpt2", "cosformer", n_layer=1)
    cache = given_cache(model)
    model(ids, cache=cache)
    again = copy.deepcopy(cache)
    model.set_attn_implementation("sdpa")
    for filled in (cache, again):
        with pytest.raises(ValueError, match="no attention of this package took its state"):
            model(ids[:, :1], cache=filled)
    model.set_attn_implementation("cosformer")
    model(ids[:, :1], cache=cache)


def test_a_cache_of_fewer_layers_or_other_rows_is_refused():
    model = stock_model("gpt2", "cosformer")
    with pytest.raises(ValueError, match="num_hidden_layers is 1 there and 2 here"):
        model(tokens(1, 5), cache=given_cache(stock_model("gpt2", "cosformer", n_layer=1)))
    grown = stock_model("gpt2", "cosformer")
    grown.transformer.h.append(copy.deepcopy(grown.transformer.h[1]))
    grown.transformer.h[2].attn.layer_idx = 2
    with pytest.raises(ValueError, match="made for a model of 2 layers"):
        grown(tokens(1, 5), cache=given_cache(grown))
    cache = given_cache(model)
    model(tokens(2, 5), cache=cache)
    with pytest.raises(ValueError, match="the cache holds 2 rows, the input has 3"):
        model(tokens(3, 1), cache=cache)


def test_models_that_do_not_hand_their_keywords_on_are_refused():
    config = GPTNeoXConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=40,
    )  # fmt: skip
    model = GPTNeoXForCausalLM._from_config(config, attn_implementation="transnormer_diag")
    with pytest.raises(ValueError, match="does not hand its keywords"):
        model(tokens(1, 5), cache=given_cache(model))
    model(tokens(1, 5), cache=DynamicCache(config=config))


def test_a_call_that_breaks_off_is_noticed():
    model, ids = stock_model("gpt2", "cosformer"), tokens(1, 6)
    cache = given_cache(model)
    model(ids, cache=cache)

    def fail(*args):
        raise KeyboardInterrupt

    handle = model.transformer.h[1].register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        model(ids[:, :1], cache=cache)
    handle.remove()
    with pytest.raises(ValueError, match="a call broke off"):
        model(ids[:, :1], cache=cache)


def test_the_mask_must_be_the_one_the_cache_was_filled_with():
    model = stock_model("gpt2", "cosformer")
    given, cache = prompt(), given_cache(model)
    model(**given, cache=cache)
    longer = torch.ones(2, 10, dtype=torch.long)
    with pytest.raises(ValueError, match="real tokens where the cache was filled with"):
        model(tokens(2, 1), attention_mask=longer, cache=cache)


def test_a_state_keeps_no_keys_to_show():
    model = stock_model("gpt2", "cosformer")
    with pytest.raises(ValueError, match="LinearStateCache keeps none"):
        model(tokens(1, 5), cache=given_cache(model), output_attentions=True)
    with pytest.raises(ValueError, match="one document a row"):
        model(tokens(1, 5), cache=given_cache(model), seq_idx=torch.tensor([[0, 0, 1, 1, 1]]))


def test_a_static_cache_is_refused():
    model = stock_model("gpt2", "cosformer")
    with pytest.raises(ValueError, match="static or sliding cache"):
        generated(model, cache_implementation="static")


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELIZED)
def test_prefix_tuning_of_a_decoder_is_attention_to_tokens_before(name):
    """PEFT puts keys of no token into an ordinary cache: they count as the first tokens."""
    import peft

    model, ids = stock_model("gpt2", name), tokens(2, 9)
    # Its learned positions count pads, under any attention; PEFT takes no others.
    torch.nn.init.zeros_(model.transformer.wpe.weight)
    config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    tuned = peft.get_peft_model(model, config).eval()
    torch.nn.init.normal_(tuned.prompt_encoder.default.embedding.weight)
    wide, mask, _ = padded(ids, 4, 0)
    with torch.no_grad():
        found = tuned(input_ids=ids).logits
        padded_too = tuned(input_ids=wide, attention_mask=mask).logits[:, 4:]
        torch.testing.assert_close(padded_too, found, atol=1e-4, rtol=1e-4)
        with tuned.disable_adapter():
            assert (tuned(input_ids=ids).logits - found).abs().max() > 1e-2
        model.set_attn_implementation(as_reference(name))
        expected = tuned(input_ids=ids).logits
        model.set_attn_implementation(name)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def as_reference(name):
    """The O(n²) formula, whose queries are the last of its keys."""

    def attend(module, query, key, value, attention_mask, **kwargs):
        past = key.shape[2] - query.shape[2]
        whole = torch.nn.functional.pad(query, (0, 0, past, 0))
        fields = {"cos_horizon": 24} if name == "cosformer" else {}
        out = REFERENCES[name](
            whole.double(), key.double(), value.double(), causal=True, key_mask=None, **fields
        )
        return out[:, :, past:].to(query.dtype).transpose(1, 2).contiguous(), None

    AttentionInterface.register(f"prefixed_{name}", attend)
    AttentionMaskInterface.register(f"prefixed_{name}", lambda **kwargs: None)
    return f"prefixed_{name}"
