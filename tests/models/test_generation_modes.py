"""What `generate` offers beside plain decoding: every option with a cache as without one.

The plain ways, caches, pieces of prompts and what is refused stand in `test_generation.py`.
"""

import copy

import pytest
import torch
from transformers import StaticCache, StoppingCriteria, StoppingCriteriaList

import hf_linear_attn as hla
from tests.conftest import TINY
from tests.models.test_generation import NEW, generate, prompts

MODES = {
    "sampled beams": {"num_beams": 3, "do_sample": True, "num_return_sequences": 2},
    "beams that may end early": {
        "num_beams": 3, "early_stopping": True, "eos_token_id": list(range(7, 30)),
        "min_new_tokens": 2,
    },
    "guidance": {"guidance_scale": 1.7},
    "guidance by a prompt": {
        "guidance_scale": 1.7, "negative_prompt_ids": torch.arange(20, 28).view(2, 4)
    },
}  # fmt: skip
ELSEWHERE = {
    "group-beam-search": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
    "contrastive-search": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "constrained-beam-search": {"num_beams": 3, "force_words_ids": [[5]]},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_with_a_cache_and_without(make_decoder, mode):
    model = make_decoder()
    ids, mask = prompts()
    cached, plain = (
        generate(model, ids, attention_mask=mask, use_cache=use_cache, **MODES[mode])
        for use_cache in (True, False)
    )
    assert torch.equal(cached, plain)


@pytest.mark.parametrize("mode", ELSEWHERE)
def test_modes_that_left_transformers_are_refused(mode):
    """By Transformers, which says where the mode went."""
    model = hla.CosformerForCausalLM(hla.CosformerConfig(**TINY))
    with pytest.raises(ValueError, match=f"transformers-community/{mode}"):
        generate(model, prompts(1)[0], **ELSEWHERE[mode])


def test_ways_that_need_keys_are_refused(make_decoder):
    model = make_decoder()
    ids, _ = prompts(1)
    with pytest.raises(ValueError, match="not supported with stateful models"):
        generate(model, ids, assistant_early_exit=1)
    with pytest.raises(ValueError, match="continuous batching keeps keys and values in pages"):
        model.generate_batch(inputs=ids.tolist(), max_new_tokens=3)


def test_going_on_from_a_cache_with_embeddings_or_new_tokens(make_decoder):
    """With the whole text as embeddings, or with its new part and the mask of all of it."""
    model = make_decoder()
    ids = torch.randint(3, 100, (2, 12))
    with torch.no_grad():
        cache = model(input_ids=ids[:, :7]).cache
        embeds = model.get_input_embeddings()(ids)
    wanted = generate(model, ids)[:, 12:]
    kept = copy.deepcopy(cache)
    assert torch.equal(model.generate(inputs_embeds=embeds, cache=cache, **NEW), wanted)
    found = generate(model, ids[:, 7:], attention_mask=torch.ones_like(ids), cache=kept)
    assert torch.equal(found[:, 5:], wanted)


def endless(make_decoder):
    """A decoder whose rows end where a test says, and a way to sample from it."""
    model = make_decoder()
    model.generation_config.eos_token_id = None
    ids, mask = prompts()

    def sample(**keywords):
        keywords = {"do_sample": True, "top_k": 0, "min_new_tokens": 0, **keywords}
        return generate(model, ids, attention_mask=mask, **keywords)

    return sample


def check_ends(found, free, at):
    """Each row is that of `free` up to its token number `at`, where the last one ends the batch."""
    assert found.shape[1] == 8 + min(max(at), 9)
    for row, wanted, end in zip(found, free, at, strict=True):
        assert torch.equal(row[: 8 + end], wanted[: 8 + end])


def test_rows_end_apart(make_decoder):
    """A row that met its end is filled with pads, and the others go on as they would."""
    sample = endless(make_decoder)
    free = sample()
    end = int(free[0, 10])
    at = [row.index(end) if end in row else 10 for row in free[:, 7:].tolist()]
    assert at[0] <= 3
    assert at[1] != at[0]
    found = sample(eos_token_id=end, pad_token_id=1)
    check_ends(found, free, at)
    assert (found[0, 8 + at[0] :] == 1).all()
    assert end not in sample(eos_token_id=end, pad_token_id=1, min_new_tokens=6)[:, 7:13]


def test_lengths(make_decoder):
    sample = endless(make_decoder)
    found = sample(max_new_tokens=None, max_length=12)
    assert torch.equal(found, sample()[:, :12])


class AfterToken(StoppingCriteria):
    """Ends every row behind its token of a list."""

    def __init__(self, tokens):
        self.tokens, self.calls = tokens, 0

    def __call__(self, input_ids, scores, **kwargs):
        self.calls += 1
        return input_ids[:, -1] == self.tokens


def test_a_stopping_criterion_of_one_s_own(make_decoder):
    sample = endless(make_decoder)
    free = sample()
    criterion = AfterToken(free[:, [9, 11]].diagonal())
    found = sample(stopping_criteria=StoppingCriteriaList([criterion]))
    rows = zip(free[:, 7:].tolist(), criterion.tokens.tolist(), strict=True)
    check_ends(found, free, [row.index(token) for row, token in rows])
    assert criterion.calls == found.shape[1] - 7


class Collector:
    """A streamer."""

    def __init__(self):
        self.parts, self.ended = [], 0

    def put(self, value):
        self.parts.append(value.flatten().tolist())

    def end(self):
        self.ended += 1


def test_tokens_are_streamed_one_by_one(make_decoder):
    model, streamer = make_decoder(), Collector()
    ids, _ = prompts(1)
    found = generate(model, ids, streamer=streamer)
    assert [len(part) for part in streamer.parts] == [7, *[1] * 10]
    assert [token for part in streamer.parts for token in part] == found[0].tolist()
    assert streamer.ended == 1


def test_what_is_returned_for_every_step(make_decoder):
    """Hidden states and scores of a step are those of the whole text at its position."""
    model = make_decoder()
    ids, mask = prompts()
    found = generate(
        model, ids, attention_mask=mask, do_sample=True, num_return_sequences=2, top_k=0,
        return_dict_in_generate=True, output_hidden_states=True, output_scores=True,
    )  # fmt: skip
    mask = torch.nn.functional.pad(mask.repeat_interleave(2, 0), (0, 10), value=1)
    with torch.no_grad():
        whole = model(
            input_ids=found.sequences, attention_mask=mask, output_hidden_states=True,
            use_cache=False,
        )  # fmt: skip
    real = mask.bool()
    for layer in range(3):
        steps = torch.cat([step[layer] for step in found.hidden_states], dim=1)
        wanted = whole.hidden_states[layer][:, :-1]
        assert (steps - wanted)[real[:, :-1]].abs().max() <= 1e-4
    chances = whole.logits.clone()
    chances[:, :, model.generation_config.eos_token_id] = -torch.inf
    chances = chances[:, 6:-1].log_softmax(-1).gather(2, found.sequences[:, 7:, None])[..., 0]
    scores = model.compute_transition_scores(found.sequences, found.scores, normalize_logits=True)
    assert (scores - chances).abs().max() <= 1e-4


@pytest.mark.parametrize("way", [{}, {"num_beams": 3}, {"prefill_chunk_size": 3}])
def test_a_static_cache_in_every_way(make_decoder, way):
    """A state has one size, so a static cache holds it; used again after `reset`."""
    model = make_decoder()
    ids, mask = prompts()
    keywords = {"attention_mask": mask, **way}
    cache = StaticCache(config=model.config, max_cache_len=32) if stateful(model) else None
    if cache is None:
        with pytest.raises(ValueError, match="a static cache has no room for softmax layers"):
            generate(model, ids, cache_implementation="static", **keywords)
        return
    wanted = generate(model, ids, **keywords)
    assert torch.equal(generate(model, ids, cache_implementation="static", **keywords), wanted)
    for _ in range(2):
        assert torch.equal(generate(model, ids, cache=cache, **keywords), wanted)
        cache.reset()


def stateful(model):
    kinds = [layer.self_attn.mechanism.cache_kind for layer in model.model.layers]
    return "full keys" not in kinds
