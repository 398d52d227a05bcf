"""`generate` in all its ways gives what the model without a cache gives."""

import copy

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DynamicCache, PreTrainedTokenizerFast, pipeline

import hf_linear_attn as hla
from hf_linear_attn.models.cache import KeysLayer
from tests.conftest import TINY
from tests.models.test_cache import held

NEW = {"max_new_tokens": 10, "min_new_tokens": 10}
WAYS = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "three beams returned": {"num_beams": 3, "num_return_sequences": 3},
    "sampling": {"do_sample": True},
    "three samples returned": {"do_sample": True, "num_return_sequences": 3},
}


def prompts(batch=2, length=7):
    """Prompts of 3 and 7 tokens, padded on the left with real ids."""
    ids, mask = torch.randint(3, 100, (batch, length)), torch.ones(batch, length, dtype=torch.long)
    mask[0, :4] = 0
    return ids, mask


def generate(model, ids, **keywords):
    torch.manual_seed(5)
    return model.generate(ids, **{**NEW, **keywords})


@pytest.mark.parametrize("way", list(WAYS))
def test_b20_with_and_without_a_cache(make_decoder, way):
    """The same tokens, scores within 1e-4, at every step."""
    model = make_decoder()
    ids, mask = prompts()
    cached, plain = (
        generate(
            model, ids, attention_mask=mask, use_cache=use_cache, return_dict_in_generate=True,
            output_logits=True, output_scores=True, **WAYS[way],
        )
        for use_cache in (True, False)
    )  # fmt: skip
    assert torch.equal(cached.sequences, plain.sequences)
    assert cached.cache is not None
    assert plain.cache is None
    assert len(cached.logits) == 10
    for found, wanted in zip(cached.logits, plain.logits, strict=True):
        assert (found - wanted).abs().max() <= 1e-4
    if "num_beams" in WAYS[way]:
        assert (cached.sequences_scores - plain.sequences_scores).abs().max() <= 1e-4


@pytest.mark.parametrize("position_embedding_type", ["learned", "rope", "lrpe", "none"])
def test_b24_short_and_long_prompts_in_one_batch(make_decoder, position_embedding_type):
    model = make_decoder(position_embedding_type=position_embedding_type)
    ids, mask = prompts()
    together = generate(model, ids, attention_mask=mask)
    for row in range(2):
        alone = generate(model, ids[row][mask[row] == 1][None])
        assert torch.equal(together[row, 7:], alone[0, -10:])


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("prefill_chunk_size", [1, 3, 5, 50])
def test_prefill_in_chunks(make_decoder, prefill_chunk_size, masked):
    model = make_decoder()
    ids, mask = prompts()
    mask = mask if masked else torch.ones_like(ids)
    wanted = generate(model, ids, attention_mask=mask)
    found = generate(model, ids, attention_mask=mask, prefill_chunk_size=prefill_chunk_size)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("masked", [True, False])
def test_going_on_from_a_returned_cache(make_decoder, masked):
    model = make_decoder()
    ids, mask = prompts()
    mask = mask if masked else torch.ones_like(ids)
    first = generate(model, ids, attention_mask=mask, return_dict_in_generate=True)
    more = torch.cat((first.sequences, torch.randint(3, 100, (2, 3))), 1)
    mask = torch.nn.functional.pad(mask, (0, 13), value=1)
    wanted = generate(model, more, attention_mask=mask)
    found = generate(model, more, attention_mask=mask, cache=first.cache)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("prompt", [8, 5])
def test_a_prompt_that_ends_before_the_cache_is_refused(make_decoder, prompt):
    """Transformers would feed it a second time."""
    model = make_decoder()
    ids = torch.randint(3, 100, (1, 8))
    with torch.no_grad():
        cache = model(input_ids=ids).cache
        embeds = model.get_input_embeddings()(ids[:, :prompt])
    for given in ({"inputs": ids[:, :prompt]}, {"inputs_embeds": embeds}):
        with pytest.raises(ValueError, match=f"the cache holds 8 tokens, inp.* {prompt}: to go on"):
            model.generate(**given, **NEW, cache=copy.deepcopy(cache))
    assert cache.get_seq_length() == 8


def test_embeddings_are_not_fed_in_chunks(make_decoder):
    model = make_decoder()
    embeds = torch.randn(1, 8, 32)
    with pytest.raises(ValueError, match="prefill_chunk_size cuts input_ids"):
        model.generate(inputs_embeds=embeds, prefill_chunk_size=3, **NEW)


def test_b23_one_prefix_many_suffixes(make_decoder):
    model = make_decoder()
    prefix = torch.randint(3, 100, (1, 8))
    with torch.no_grad():
        cache = model(input_ids=prefix).cache
    before = {name: x.clone() for name, x in held(cache).items()}
    for _ in range(2):
        ids = torch.cat((prefix, torch.randint(3, 100, (1, 4))), 1)
        found = generate(model, ids, cache=copy.deepcopy(cache))
        assert torch.equal(found, generate(model, ids))
    assert cache.get_seq_length() == 8
    assert all(torch.equal(x, before[name]) for name, x in held(cache).items())


def test_prompts_as_embeddings(make_decoder):
    model = make_decoder()
    ids, mask = prompts()
    embeds = model.get_input_embeddings()(ids)
    wanted = generate(model, ids, attention_mask=mask)[:, 7:]
    found = model.generate(inputs_embeds=embeds, attention_mask=mask, **NEW)
    assert torch.equal(found, wanted)
    both = generate(model, ids, inputs_embeds=embeds, attention_mask=mask)
    assert torch.equal(both[:, 7:], wanted)


def test_empty_caches(make_decoder):
    model = make_decoder()
    ids, mask = prompts()
    wanted = generate(model, ids, attention_mask=mask)
    for cache in (None, DynamicCache(), DynamicCache(config=model.config)):
        assert torch.equal(generate(model, ids, attention_mask=mask, cache=cache), wanted)


def test_kinds_of_caches(make_decoder):
    """A state has one size and stays where it is; growing keys are offloaded on a GPU only."""
    model = make_decoder()
    ids, mask = prompts()
    wanted = generate(model, ids, attention_mask=mask)
    keys = any(isinstance(layer, KeysLayer) for layer in DynamicCache(config=model.config).layers)
    messages = {"offloaded": "Leave cache_implementation='offloaded' out", "static": "a static ca"}
    for kind, message in messages.items():
        keywords = {"attention_mask": mask, "cache_implementation": kind}
        if keys:
            with pytest.raises(ValueError, match=message):
                generate(model, ids, **keywords)
        else:
            assert torch.equal(generate(model, ids, **keywords), wanted)
    with pytest.raises(ValueError, match="only full attention layers"):
        generate(model, ids, attention_mask=mask, cache_implementation="quantized")


def test_assisted_decoding_is_refused(make_decoder):
    model, assistant = make_decoder(), make_decoder(seed=1)
    ids, _ = prompts(1)
    for keywords in ({"prompt_lookup_num_tokens": 3}, {"assistant_model": assistant}):
        with pytest.raises(ValueError, match="not supported with stateful models"):
            generate(model, ids, **keywords)


def test_packing_is_no_business_of_generate(make_decoder):
    ids, _ = prompts()
    with pytest.raises(ValueError, match="seq_idx"):
        generate(make_decoder(), ids, seq_idx=torch.zeros_like(ids))


def test_b38_generation_ends_with_a_clear_error_at_the_limit(make_decoder):
    model = make_decoder(max_position_embeddings=16, position_embedding_type="learned")
    ids, _ = prompts(2, 6)
    ids = ids[:, :6]
    limit = {"max_new_tokens": 11, "min_new_tokens": 11}
    assert generate(model, ids, **limit).shape == (2, 17)
    for length in (12, 30):
        with pytest.raises(ValueError, match="position 16 is outside the model's table of 16"):
            generate(model, ids, max_new_tokens=length, min_new_tokens=length)
    # Left to itself, Transformers stops at max_position_embeddings.
    model.generation_config.eos_token_id = None
    assert model.generate(ids).shape == (2, 16)


def test_b38_cosformer_s_horizon_ends_generation():
    config = hla.CosformerConfig(**TINY, cos_horizon=8, position_embedding_type="none")
    model = hla.CosformerForCausalLM(config).eval()
    with pytest.raises(ValueError, match="position 8 is outside cosFormer's horizon of 8"):
        generate(model, torch.randint(3, 100, (1, 4)))


def test_generation_in_training_mode(make_decoder):
    """With gradient checkpointing left on, too: nothing is replayed without gradients."""
    model = make_decoder(hidden_dropout_prob=0.0)
    ids, mask = prompts()
    wanted = generate(model, ids, attention_mask=mask)
    model.train().activation_checkpointing_enable()
    assert torch.equal(generate(model, ids, attention_mask=mask), wanted)


@pytest.fixture
def tokenizer():
    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(96))]
    vocabulary = {word: i for i, word in enumerate(words)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", pad_token="<pad>", eos_token="</s>",
        unk_token="<unk>", padding_side="left",
    )  # fmt: skip


def test_the_text_generation_pipeline(make_decoder, tokenizer):
    model = make_decoder()
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer)
    texts = ["w5 w6 w7", "w1 w2 w3 w4 w5 w6 w7"]
    options = {"do_sample": False, "return_full_text": False, **NEW}
    found = [out[0]["generated_text"] for out in pipe(texts, batch_size=2, **options)]
    for text, continuation in zip(texts, found, strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        wanted = generate(model, ids)[0, ids.shape[1] :]
        assert continuation.split() == tokenizer.decode(wanted).split()
