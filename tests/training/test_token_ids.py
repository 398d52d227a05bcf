"""Tokenizers whose ids have gaps: what is drawn, counted and sized goes by the largest id."""

import json
from pathlib import Path

import datasets
import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training.arguments import DataArguments, MaskingArguments, ModelArguments
from hf_linear_attn.training.causal_lm_arguments import CausalLMTaskArguments
from hf_linear_attn.training.causal_lm_data import prepare_causal_lm
from hf_linear_attn.training.masked_lm_data import prepare_masked_lm
from hf_linear_attn.training.model_setup import build_config
from hf_linear_attn.training.token_ids import id_bound
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer

LETTER, ID = "b", 400


@pytest.fixture
def with_gap(tmp_path, monkeypatch):
    """A folder with a tokenizer of 261 tokens, one of which has the id 400."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    plain = load_or_train_tokenizer(None, ["text"], 261, 16)
    content = json.loads(plain.backend_tokenizer.to_str())
    content["model"]["vocab"][LETTER] = ID
    backend = Tokenizer.from_str(json.dumps(content))
    PreTrainedTokenizerFast(tokenizer_object=backend, **plain.special_tokens_map).save_pretrained(
        "tokenizer"
    )
    Path("text.txt").write_text("\n\n".join(["abab cdcd abab", "efef abab"] * 30))
    return "tokenizer"


def data_arguments():
    return DataArguments(train_file="text.txt", block_size=16, validation_fraction=0.2)


def check_ids(data):
    assert len(data.tokenizer) == 261
    assert id_bound(data.tokenizer) == ID + 1
    assert any(ID in row["input_ids"] for row in data.train)
    args = ModelArguments(model={"hidden_size": 16, "num_attention_heads": 2})
    assert build_config(args, data.tokenizer).vocab_size == ID + 1
    small = ModelArguments(model={"vocab_size": 261})
    with pytest.raises(ValueError, match="vocabulary of 261 and the tokenizer of 401"):
        build_config(small, data.tokenizer)


def test_masked_language_models(with_gap):
    data = prepare_masked_lm(data_arguments(), MaskingArguments(), with_gap, 261, 16, 0)
    check_ids(data)
    drawn = set(data.collator.ordinary_ids.tolist())
    assert drawn == set(data.tokenizer.get_vocab().values()) - {0, 1, 2, 3, 4}


def test_causal_language_models(with_gap):
    check_ids(prepare_causal_lm(data_arguments(), CausalLMTaskArguments(), with_gap, 261, 16, 0))


def test_a_tokenizer_without_gaps_is_bounded_by_its_number_of_tokens():
    tokenizer = load_or_train_tokenizer(None, ["text"], 261, 16)
    assert id_bound(tokenizer) == len(tokenizer) == 261
    tokenizer.add_tokens(["<new>"])
    assert id_bound(tokenizer) == 262
