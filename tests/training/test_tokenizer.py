"""The tokenizer: trained, saved, loaded."""

import json
import os
import subprocess
import sys

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_linear_attn.training.tokenizer import describe_tokenizer, load_or_train_tokenizer

TEXTS = [
    "The linear attention of the paper is linear in the length of the sequence.",
    "A masked language model guesses the masked words of the sentence.",
    "def attention(query, key, value):\n    return query @ (key.T @ value)\n",
] * 4
STRANGE = "Hé\u0000llo </s> <mask> 日本 \r\n\t  ﷽ 🙂 \ud7ff do n't end . "


def train(vocab_size=320, texts=TEXTS, max_length=64):
    return load_or_train_tokenizer(None, iter(texts), vocab_size, max_length, total=len(texts))


def test_special_tokens_have_the_ids_of_roberta():
    tokenizer = train()
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert tokenizer.convert_tokens_to_ids(names) == [0, 1, 2, 3, 4]
    assert (tokenizer.cls_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id) == (0, 0, 1)
    assert (tokenizer.sep_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id) == (2, 2, 4)
    assert tokenizer.unk_token_id == 3
    assert len(tokenizer) == 320
    assert tokenizer.model_max_length == 64


def test_post_processor_is_that_of_roberta():
    tokenizer = train(261)
    assert tokenizer("a").tokens() == ["<s>", "a", "</s>"]
    assert tokenizer("a", "b").tokens() == ["<s>", "a", "</s>", "</s>", "b", "</s>"]
    assert sorted(tokenizer("a")) == ["attention_mask", "input_ids"]


def test_the_mask_swallows_the_space_before_it():
    tokenizer = train()
    with_space = tokenizer("the <mask> model").input_ids
    assert with_space == tokenizer("the<mask> model").input_ids


@pytest.mark.parametrize("vocab_size", [261, 320])
def test_any_text_round_trips(vocab_size):
    tokenizer = train(vocab_size)
    ids = tokenizer(STRANGE, add_special_tokens=False, split_special_tokens=True).input_ids
    assert tokenizer.decode(ids) == STRANGE
    assert min(ids) >= 5
    if vocab_size == 261:
        assert len(ids) == len(STRANGE.encode())


def test_training_is_deterministic():
    one, other = train(), train(texts=list(reversed(TEXTS)))
    assert one.backend_tokenizer.to_str() == train().backend_tokenizer.to_str()
    assert one.get_vocab() == other.get_vocab()


@pytest.mark.slow
def test_a_saved_tokenizer_gives_the_same_ids_in_a_fresh_process(tmp_path):
    tokenizer = train()
    tokenizer.save_pretrained(tmp_path / "one")
    loaded = load_or_train_tokenizer(str(tmp_path / "one"), [], 0, 64)
    loaded.save_pretrained(tmp_path / "two")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        one, two = (json.loads((tmp_path / f / name).read_text()) for f in ("one", "two"))
        assert {**one, "is_local": 0, "local_files_only": 0} == {
            **two, "is_local": 0, "local_files_only": 0
        }  # fmt: skip
    code = (
        "import sys, json; from transformers import AutoTokenizer;"
        "t = AutoTokenizer.from_pretrained(sys.argv[1]);"
        "print(json.dumps([t(json.loads(sys.argv[2])).input_ids, t.model_max_length]))"
    )
    texts = [*TEXTS, STRANGE]
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "one"), json.dumps(texts)],
        capture_output=True, text=True, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert json.loads(out.stdout.splitlines()[-1]) == [tokenizer(texts).input_ids, 64]


def test_a_loaded_tokenizer_takes_the_length_of_the_model(tmp_path):
    train().save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == 64
    loaded = load_or_train_tokenizer(str(tmp_path), iter(()), 0, 128)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    assert loaded.model_max_length == 128


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="got 260, expected at least 261"):
        train(260)
    with pytest.raises(ValueError, match="no text"):
        train(texts=[])
    with pytest.raises(ValueError, match="max_length: got 0"):
        train(max_length=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty' cannot be loaded") as caught:
        load_or_train_tokenizer(str(tmp_path / "empty"), [], 0, 64)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_mask_is_refused(tmp_path):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train().backend_tokenizer, pad_token="<pad>", eos_token="</s>"
    )
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no mask_token"):
        load_or_train_tokenizer(str(tmp_path), [], 0, 64)


def test_a_loaded_tokenizer_is_saved_again_as_it_was(tmp_path):
    train().save_pretrained(tmp_path / "first")
    again = load_or_train_tokenizer(str(tmp_path / "first"), (), 320, 64)
    again.save_pretrained(tmp_path / "second")
    for file in (tmp_path / "first").iterdir():
        assert (tmp_path / "second" / file.name).read_bytes() == file.read_bytes()


def test_it_is_said_whether_a_tokenizer_was_trained_or_loaded(tmp_path):
    assert describe_tokenizer(None, train()) == (
        "Tokenizer: trained on the training text, 320 tokens"
    )
    assert describe_tokenizer("run/checkpoint-4", train()) == (
        "Tokenizer: that of run/checkpoint-4, 320 tokens"
    )
