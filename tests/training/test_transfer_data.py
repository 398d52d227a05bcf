"""Text becomes batches for an attention transfer."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from hf_linear_attn.training.transfer_data import transfer_data

DOCUMENTS = [f"the {i}th cat sat on mat number {i * i}" for i in range(160)]


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, DOCUMENTS, 300, 512)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    return str(path)


def blocks(batches):
    return [tuple(row.tolist()) for batch in batches for row in batch["input_ids"]]


def test_the_text_is_there_once_in_blocks(file, tokenizer):
    data = transfer_data([file], tokenizer, block_size=32, batch_size=3, evaluation_blocks=4)
    held, train = blocks(data.evaluation), blocks(data.train)
    assert len(held) == 4
    assert {len(block) for block in held + train} == {32}
    assert not set(held) & set(train)
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    row = [
        i for text in DOCUMENTS for i in [*tokenizer(text, add_special_tokens=False).input_ids, end]
    ]
    wanted = {(start, *row[at : at + 31]) for at in range(0, len(row) - 31, 31)}
    assert set(held + train) == wanted
    assert data.description == f"{len(wanted)} blocks of 32 tokens, 4 of them held out"
    assert data.evaluation[0]["input_ids"].dtype == torch.int64
    assert data.evaluation[0]["input_ids"].shape == (3, 32)


def test_the_order_is_the_seeds_and_another_one_each_time(file, tokenizer):
    one, same, other = (
        transfer_data([file], tokenizer, block_size=32, seed=seed) for seed in (0, 0, 1)
    )
    first, second = blocks(one.train), blocks(one.train)
    assert first != second
    assert sorted(first) == sorted(second)
    assert (blocks(same.train), blocks(same.train)) == (first, second)
    assert set(blocks(other.evaluation)) != set(blocks(one.evaluation))


def test_a_tokenizer_without_edges_or_pads_serves(file, tokenizer):
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)
    data = transfer_data([file], bare, block_size=32)
    assert not {0, 1, 2} & {i for block in blocks(data.train) for i in block}


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"block_size": 4}, "block_size: got 4"),
        ({"batch_size": 0}, "batch_size: got 0"),
        ({"evaluation_blocks": 0}, "evaluation_blocks: got 0"),
        ({"block_size": 9000}, "tokens do not fill two blocks of 9,000"),
        ({"files": ["none.txt"]}, "'none.txt' does not exist"),
        ({"tokenizer": object()}, "got a object; expected a fast tokenizer"),
    ],
)
def test_what_cannot_be_cut_is_refused(file, tokenizer, keywords, words):
    settings = {"files": [file], "tokenizer": tokenizer, "block_size": 32, **keywords}
    with pytest.raises(ValueError, match=words):
        transfer_data(**settings)
