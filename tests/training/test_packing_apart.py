"""Documents that share a block and do not see each other; windows that score every token once."""

import pytest
from datasets import Dataset, DatasetDict

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.blocks import build_examples, causal_lm_layout, describe
from hf_linear_attn.training.packing import Layout, pack_apart, sliding_windows, split_long
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from hf_linear_attn.training.windows import build_windows

START, PAD, END = 0, 1, 2


@pytest.fixture(scope="module")
def tokenizer():
    return load_or_train_tokenizer(None, ["some text"], 261, 64, causal=True)


def sequences(*lengths):
    """Documents of 10, 11, 12, …, each token its own number."""
    ids, first = [], 10
    for length in lengths:
        ids.append(list(range(first, first + length)))
        first += length
    return {"input_ids": ids, "word_ids": [[0] * len(row) for row in ids]}


def splits(*texts):
    documents = Dataset.from_dict({"text": list(texts)})
    return DatasetDict({"train": documents, "validation": documents})


def blocks(*lengths, size=8, remainder="keep"):
    layout = Layout(size, START, END, PAD, apart=True)
    return list(pack_apart([sequences(*lengths)], layout, remainder))


def test_each_piece_has_a_start_and_a_number_of_its_own():
    first, second, third = blocks(3, 5, 6)
    assert first["input_ids"] == [START, 10, 11, 12, END, START, 13, 14]
    assert first["seq_idx"] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert second["input_ids"] == [START, 15, 16, 17, END, START, 18, 19]
    assert third["input_ids"] == [START, 20, 21, 22, 23, END]
    assert third["seq_idx"] == [0] * 6


def test_b34_blocks_are_full_and_nothing_is_lost():
    """Token counts 5, 5, 3, in blocks of 4."""
    rows = blocks(5, 5, 3, size=4)
    assert all(len(row["input_ids"]) == 4 for row in rows[:-1])
    tokens = [t for row in rows for t in row["input_ids"] if t not in (START, END)]
    assert tokens == list(range(10, 23))
    assert sum(row["input_ids"].count(END) for row in rows) == 3
    assert all(len(row["seq_idx"]) == len(row["input_ids"]) for row in rows)
    # However documents are batched.
    layout = Layout(4, START, END, PAD, apart=True)
    halves = [sequences(5, 5, 3)]
    split = [{k: v[:2] for k, v in halves[0].items()}, {k: v[2:] for k, v in halves[0].items()}]
    assert list(pack_apart(split, layout, "keep")) == rows
    assert list(pack_apart(split, layout, "drop")) == rows[:-1]


def test_a_start_may_stand_alone_at_the_end_of_a_block():
    first, second = blocks(5, 2)
    assert first["input_ids"] == [START, 10, 11, 12, 13, 14, END, START]
    assert first["seq_idx"] == [0] * 7 + [1]
    assert second["input_ids"] == [START, 15, 16, END]


def test_the_padded_remainder_opens_no_document():
    (row,) = blocks(2, 1, size=9, remainder="pad")
    assert row["input_ids"] == [START, 10, 11, END, START, 12, END, PAD, PAD]
    assert row["seq_idx"] == [0] * 4 + [1] * 5
    assert row["attention_mask"] == [1] * 7 + [0] * 2


def test_only_the_last_piece_of_a_document_has_an_end():
    pieces = split_long(sequences(7, 2), Layout(5, START, END, open_pieces=True))["input_ids"]
    assert pieces == [
        [START, 10, 11, 12],
        [START, 13, 14, 15],
        [START, 16, END],
        [START, 17, 18, END],
    ]


@pytest.mark.parametrize("remainder", ["drop", "pad", "keep"])
def test_examples_through_datasets(tokenizer, remainder):
    args = DataArguments(block_size=8, remainder=remainder)
    layout = causal_lm_layout(tokenizer, 8, apart=True)
    examples = build_examples(splits("abc", "0123456789"), tokenizer, args, layout)["train"]
    expected = ["<s>abc</s><s>01", "<s>2345678", "<s>9</s>"][: 2 if remainder == "drop" else 3]
    decoded = [tokenizer.decode(row).replace("<pad>", "") for row in examples["input_ids"]]
    assert decoded == expected
    assert {len(row) for row in examples["input_ids"]} == ({8, 3} if remainder == "keep" else {8})


def test_too_little_for_one_block_is_an_error(tokenizer):
    layout = causal_lm_layout(tokenizer, 8, apart=True)
    args = DataArguments(block_size=8)
    # Starts and ends count: three documents of one token are 9 tokens.
    assert len(build_examples(splits("a", "b", "c"), tokenizer, args, layout)["train"]) == 1
    with pytest.raises(ValueError, match="do not fill one block of 8"):
        build_examples(splits("a", "b"), tokenizer, args, layout)


def test_text_as_it_stands(tokenizer):
    args = DataArguments(block_size=8, data_format="text", remainder="keep")
    layout = causal_lm_layout(tokenizer, 8)
    examples = build_examples(splits("one\n\n", "two\nthree"), tokenizer, args, layout)
    decoded = [tokenizer.decode(row) for row in examples["train"]["input_ids"]]
    assert decoded == ["<s>one\n\ntw", "<s>o\nthree"]
    assert "14 tokens as the text stands became 2 full blocks of 8" in describe(examples)


@pytest.mark.parametrize(("length", "capacity", "stride"), [(20, 6, 2), (19, 6, 5), (7, 6, 6)])
def test_windows_score_every_token_once(length, capacity, stride):
    text = list(range(length))
    scored = []
    for n, (window, count) in enumerate(sliding_windows(text, capacity, stride)):
        assert window == text[n * stride : n * stride + capacity]
        assert n == 0 or len(window) < capacity or len(window) - count == capacity - stride
        scored += window[len(window) - count :]
    assert scored == text


def test_a_text_shorter_than_a_window_is_one():
    assert list(sliding_windows([1, 2], 6, 3)) == [([1, 2], 2)]
    assert list(sliding_windows([], 6, 3)) == []


def test_windows_as_wide_as_they_lie_apart_are_the_blocks(tokenizer):
    args = DataArguments(block_size=8, remainder="keep")
    layout = causal_lm_layout(tokenizer, 8)
    documents = splits("abc", "0123456789")
    plain = build_examples(documents, tokenizer, args, layout)["validation"]
    windows = build_windows(documents["validation"], tokenizer, args, layout, 7)
    assert windows["input_ids"][:] == plain["input_ids"][:]
    assert [row[0] for row in windows["labels"]] == [-100] * 2


@pytest.mark.parametrize(
    ("fields", "apart", "texts"),
    [
        ({}, False, ["abc</s>0123456789"]),
        ({}, True, ["abc</s>", "0123456789</s>"]),
        ({"data_format": "documents"}, False, ["abc</s>", "0123456789</s>"]),
        ({"data_format": "text"}, False, ["abc0123456789"]),
    ],
)
def test_what_a_window_may_see(tokenizer, fields, apart, texts):
    args = DataArguments(block_size=8, **fields)
    layout = causal_lm_layout(tokenizer, 8, apart=apart)
    windows = build_windows(splits("abc", "0123456789")["train"], tokenizer, args, layout, 3)
    scored = [t for row in windows["labels"] for t in row if t != -100]
    assert tokenizer.decode(scored) == "".join(texts)
    for ids in windows["input_ids"]:
        assert any(tokenizer.decode(ids[1:]) in text for text in texts)
    limited = DataArguments(block_size=8, max_eval_examples=1, **fields)
    first = build_windows(splits("abc", "0123456789")["train"], tokenizer, limited, layout, 3)
    assert len(first) == 1
    assert "the first 1 are used" in first.info.description
