"""Texts a causal language model goes on with: exactly what `generate` gives, within its limits."""

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.training.continuation import (
    Continuation,
    beginnings,
    check_prompts,
    continue_texts,
)
from hf_linear_attn.training.report import continuation_lines
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.conftest import TINY


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 32, causal=True)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    fields = {**TINY, "vocab_size": 261, "max_position_embeddings": 32}
    return hla.CosformerForCausalLM(hla.CosformerConfig(**fields))


def write(model, tokenizer, prompts=("abc", "de"), **fields):
    fields = {"max_length": 32, "max_new_tokens": 6, "temperature": 0, "seed": 0, **fields}
    return continue_texts(model, tokenizer, prompts, **fields)


def test_the_likeliest_tokens_are_those_of_the_model(model, tokenizer):
    for one in write(model, tokenizer, max_new_tokens=4):
        ids = tokenizer(one.prompt, return_tensors="pt").input_ids
        expected = []
        for _ in range(4):
            with torch.no_grad():
                ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
            expected.append(int(ids[0, -1]))
            if expected[-1] == tokenizer.eos_token_id:
                break
        assert one.written == tokenizer.decode(expected, skip_special_tokens=True)


def test_draws_follow_the_seed_and_leave_the_random_state_alone(model, tokenizer):
    before = torch.get_rng_state()
    texts = [write(model, tokenizer, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert texts[0] == texts[1] != texts[2]


def test_the_models_limit_ends_a_continuation(model, tokenizer):
    prompt = "x" * 29  # 30 tokens with the start, so two are left
    (one,) = write(model, tokenizer, [prompt], max_new_tokens=9)
    assert len(one.written) <= 2
    assert write(model, tokenizer, max_new_tokens=0) == []


def test_prompts_that_leave_no_room_are_refused(tokenizer):
    check_prompts(["x" * 30], tokenizer, 32)
    check_prompts(["x" * 99], tokenizer, None)
    with pytest.raises(ValueError, match="has 32 tokens and the model takes 32"):
        check_prompts(["x" * 31], tokenizer, 32)


def test_beginnings_leave_half_of_the_model_free(tokenizer):
    texts = ["too short", "one two three four five six seven eight nine", "a b c d e f g h i j"]
    assert beginnings(texts, tokenizer, None) == [
        "one two three four five six seven eight",
        "a b c d e f g h",
    ]
    assert beginnings(texts, tokenizer, 32) == ["one two three", "a b c d e f g h"]
    assert beginnings(texts * 9, tokenizer, None, count=2, words=3) == ["one two three", "a b c"]


def test_a_line_stays_a_line():
    (title, line) = continuation_lines([Continuation("one\ntwo", " three\tfour\n")])
    assert title.plain.strip().startswith("What the model goes on with")
    assert line.plain == "  one\\ntwo three\\tfour\\n"
    assert continuation_lines([]) == []


def test_words_are_parted_from_the_prompt(model):
    tokenizer = load_or_train_tokenizer(None, ["one two"], 7, 32, causal=True, kind="word")
    fields = {**TINY, "vocab_size": 7, "max_position_embeddings": 32}
    torch.manual_seed(0)
    words = hla.CosformerForCausalLM(hla.CosformerConfig(**fields))
    (one,) = write(words, tokenizer, ["one two one"])
    assert one.prompt + one.written == "one two one " + one.written.strip()
