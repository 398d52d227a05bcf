"""Data of a causal-LM run: what is predicted, what the unigram model scores, tokenizers."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

import hf_linear_attn as hla
from hf_linear_attn.training import text_and_tokenizer
from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.causal_lm_arguments import CausalLMTaskArguments
from hf_linear_attn.training.causal_lm_data import prepare_causal_lm
from hf_linear_attn.training.collators import CausalLMCollator
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.conftest import TINY

TEXT = "one two three\n\nfour five six seven\n\neight nine\n\nten eleven twelve"


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text(TEXT)
    Path("valid.txt").write_text("two nine four\n\neleven")

    def run(task=None, tokenizer=None, vocab_size=261, kind="bpe", **data):
        data = {"block_size": 16, "remainder": "keep", **data}
        args = DataArguments(train_file=["train.txt"], validation_file=["valid.txt"], **data)
        task = CausalLMTaskArguments(**(task or {}))
        return prepare_causal_lm(args, task, tokenizer, vocab_size, 64, 0, kind)

    return run


def predicted(data) -> list[int]:
    """Every target, as the model shifts the labels."""
    rows = list(data.evaluation)
    batch = data.collator(rows)
    return [int(t) for row in batch["labels"] for t in row[1:] if t != -100]


@pytest.mark.parametrize(
    ("task", "fields", "text"),
    [
        ({}, {}, "two nine four</s>eleven"),
        ({"keep_documents_apart": True}, {}, "two nine four</s>eleven</s>"),
        ({"stride": 5}, {}, "two nine four</s>eleven"),
        ({"stride": 5, "keep_documents_apart": True}, {}, "two nine four</s>eleven</s>"),
        ({}, {"data_format": "documents"}, "two nine four</s>eleven</s>"),
        ({}, {"data_format": "text"}, "two nine four\n\neleven"),
    ],
)
def test_what_is_predicted_in_evaluation(prepare, task, fields, text):
    data = prepare(task, **fields)
    assert data.tokenizer.decode(predicted(data)) == text
    assert data.unigram.tokens == len(predicted(data))


@pytest.mark.parametrize("task", [{}, {"keep_documents_apart": True}])
def test_the_unigram_model_is_that_of_the_training_targets(prepare, task):
    data = prepare(task)
    targets = Counter()
    for row in data.train:
        batch = data.collator([row])
        targets.update(int(t) for t in batch["labels"][0, 1:] if t != -100)
    # <s>, <pad> and <mask> are never predicted.
    total = sum(targets.values()) + len(data.tokenizer) - 3
    tokens = predicted(data)
    loss = sum(math.log(total) - math.log(targets[t] + 1) for t in tokens) / len(tokens)
    assert data.unigram.loss == pytest.approx(loss, rel=1e-12)


def test_documents_kept_apart_give_the_loss_of_documents_alone(prepare):
    together = prepare({"keep_documents_apart": True}, block_size=32)
    alone = prepare({}, data_format="documents", block_size=32)
    torch.manual_seed(0)
    fields = {**TINY, "vocab_size": 261, "max_position_embeddings": 32}
    model = hla.CosformerForCausalLM(hla.CosformerConfig(**fields)).eval()
    losses = []
    for data in (together, alone):
        batch = data.collator(list(data.evaluation))
        with torch.no_grad():
            losses.append(float(model(**batch).loss))
    assert len(together.evaluation) == 1
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    # The Trainer counts targets from the labels alone; the model refuses a wrong count.
    train = together.collator(list(together.train))
    count = int((train["labels"][:, 1:] != -100).sum())
    with torch.no_grad():
        counted, plain = (model(**train, num_items_in_batch=n).loss for n in (count, None))
    assert float(counted) == pytest.approx(float(plain), rel=1e-6)


def test_b33_the_end_is_learnt_where_it_is_the_padding_token(prepare, tmp_path):
    tokenizer = load_or_train_tokenizer(None, [TEXT], 261, 64)
    tokenizer.add_special_tokens({"pad_token": "</s>", "cls_token": "</s>", "bos_token": "</s>"})
    tokenizer.save_pretrained("gpt")
    data = prepare(tokenizer=str(tmp_path / "gpt"), data_format="documents")
    end = data.tokenizer.eos_token_id
    assert data.tokenizer.pad_token_id == end == data.tokenizer("x")["input_ids"][0]
    assert predicted(data).count(end) == 2
    assert math.isfinite(data.unigram.loss)
    batch = data.collator([data.train[0], data.train[1]])
    lost = (batch["labels"] == -100) != (batch["attention_mask"] == 0)
    assert not lost.any()


def test_a_tokenizer_without_padding_token_pads_with_its_end(prepare, tmp_path):
    tokenizer = load_or_train_tokenizer(None, [TEXT], 261, 64)
    tokenizer.pad_token = None
    tokenizer.mask_token = None
    tokenizer.save_pretrained("gpt")
    data = prepare(tokenizer=str(tmp_path / "gpt"))
    assert data.tokenizer.pad_token == "</s>"
    tokenizer.eos_token = tokenizer.sep_token = tokenizer.bos_token = tokenizer.cls_token = None
    tokenizer.save_pretrained("bare")
    with pytest.raises(ValueError, match="no token for the end of a text"):
        prepare(tokenizer=str(tmp_path / "bare"))


def test_a_text_is_left_open_for_the_model_to_go_on(prepare, tmp_path):
    for name in (None, str(tmp_path / "roberta")):
        if name is not None:
            load_or_train_tokenizer(None, [TEXT], 261, 64).save_pretrained(name)
        data = prepare(tokenizer=name)
        assert data.tokenizer.decode(data.tokenizer("two").input_ids) == "<s>two"
        assert data.tokenizer.decode(data.tokenizer("two", "six").input_ids) == "<s>two<s>six"


def test_an_evaluation_file_is_looked_for_before_the_training_text_is_read(monkeypatch, tmp_path):
    def read(*_):
        raise AssertionError("the training text was read")

    monkeypatch.setattr(text_and_tokenizer, "load_documents", read)
    args = DataArguments(train_file=["a.txt"], validation_file=[str(tmp_path / "none.txt")])
    with pytest.raises(ValueError, match=r"none\.txt"):
        prepare_causal_lm(args, CausalLMTaskArguments(), None, 261, 64, 0)


def test_words_as_tokens(prepare):
    data = prepare(kind="word", vocab_size=100, data_format="text", block_size=32)
    assert data.tokenizer.decode(predicted(data)) == "two nine four</s></s>eleven".replace(
        "</s></s>", " </s> </s> "
    )
    assert data.tokenizer("twenty two").input_ids[1:] == [
        data.tokenizer.unk_token_id,
        data.tokenizer.convert_tokens_to_ids("two"),
    ]
    small = prepare(kind="word", vocab_size=7, data_format="text", block_size=32)
    assert len(small.tokenizer) == 7
    with pytest.raises(ValueError, match="expected at least 6: a word"):
        prepare(kind="word", vocab_size=5)


def test_blocks_score_as_many_tokens_as_windows_where_words_are_special(prepare):
    """Line ends and unknown words are tokens to predict, also where a block holds nothing else."""
    Path("valid.txt").write_text("two nine\n" + "\n" * 40 + "nobody knows this\n" * 9 + "one\n")
    fields = {"kind": "word", "vocab_size": 30, "data_format": "text"}
    blocks, windows = prepare({}, **fields), prepare({"stride": 15}, **fields)
    assert len(predicted(blocks)) == len(predicted(windows)) == 2 + 41 + 9 * 4 + 2
    assert "left out" not in blocks.description


def test_special_tokens_written_out_are_unknown_words(prepare):
    Path("valid.txt").write_text("two <s> nine <mask> four\n<pad> </s> eleven")
    data = prepare(kind="word", vocab_size=100, data_format="text", block_size=32)
    assert data.tokenizer.decode(predicted(data)) == (
        "two <unk> nine <unk> four </s> <unk> <unk> eleven"
    )
    assert math.isfinite(data.unigram.loss)


def test_a_vocabulary_of_words_has_no_gaps():
    """Special tokens written out in a text are unknown words of it, as <unk> is in WikiText."""
    texts = ["a <unk> b\n<unk> <unk> </s> c", "a a d"]
    tokenizer = load_or_train_tokenizer(None, texts, 99, 64, causal=True, kind="word")
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer))) == list(range(9))
    ids = tokenizer(texts[0], add_special_tokens=False, split_special_tokens=True).input_ids
    assert tokenizer.decode(ids) == "a <unk> b </s> <unk> <unk> <unk> c"


def test_the_collator_gives_no_label_where_a_document_begins():
    tokenizer = load_or_train_tokenizer(None, [TEXT], 261, 64, causal=True)
    collator = CausalLMCollator(tokenizer)
    row = {"input_ids": [0, 10, 2, 0, 11], "seq_idx": [0, 0, 0, 1, 1]}
    batch = collator([row, {"input_ids": [0, 12], "seq_idx": [0, 0]}])
    assert batch["labels"].tolist() == [[0, 10, 2, -100, 11], [0, 12, -100, -100, -100]]
    assert batch["seq_idx"].tolist() == [[0, 0, 0, 1, 1], [0] * 5]
    tokenizer.padding_side = "left"
    left = CausalLMCollator(tokenizer)([row, {"input_ids": [0, 12], "seq_idx": [3, 3]}])
    assert left["seq_idx"].tolist()[1] == [3] * 5
    assert left["labels"].tolist()[1] == [-100, -100, -100, -100, 12]


def test_arguments_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="keep_documents_apart is for data_format blocks"):
        CausalLMTaskArguments(keep_documents_apart=True).check_with(
            DataArguments(data_format="lines")
        )
    CausalLMTaskArguments(stride=15).check_with(DataArguments(block_size=16))
    with pytest.raises(ValueError, match="stride 16 would leave tokens out"):
        CausalLMTaskArguments(stride=16).check_with(DataArguments(block_size=16))
    for fields in (
        {"stride": 0},
        {"max_new_tokens": -1},
        {"temperature": -0.1},
        {"prompts": [" "]},
    ):
        with pytest.raises(ValueError, match=next(iter(fields))):
            CausalLMTaskArguments(**fields)
