"""Examples from documents: packed blocks, documents, lines."""

import pytest

from hf_linear_attn.training.arguments import DataArguments
from hf_linear_attn.training.blocks import build_examples, describe, pack_dataset
from hf_linear_attn.training.packing import Layout, pack, split_long
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from hf_linear_attn.training.tokenizing import tokenize

START, PAD, END = 0, 1, 2


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Whatever `datasets` writes goes to a folder of the test."""
    import datasets

    folder = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer():
    """One token a byte: the number of tokens can be read off the text."""
    return load_or_train_tokenizer(None, ["a text"], 261, 64)


def splits(*texts: str, streaming: bool = False):
    """The same documents for training and evaluation."""
    from datasets import Dataset, DatasetDict, IterableDatasetDict

    dataset = Dataset.from_dict({"text": list(texts)})
    if streaming:
        stream = dataset.to_iterable_dataset()
        return IterableDatasetDict({"train": stream, "validation": stream})
    return DatasetDict({"train": dataset, "validation": dataset})


def sequences(*lengths: int) -> dict[str, list[list[int]]]:
    """Token ids 100, 101, … over all sequences, every token a word."""
    starts = [100 + sum(lengths[:n]) for n in range(len(lengths))]
    return {
        "input_ids": [list(range(s, s + n)) for s, n in zip(starts, lengths, strict=True)],
        "word_ids": [list(range(n)) for n in lengths],
    }


def ids(examples) -> list[list[int]]:
    return [example["input_ids"] for example in examples]


PLAIN = Layout(block_size=4, start=None, end=None)


def test_b34_counts_5_5_3_in_blocks_of_4_give_three_blocks_and_drop_one_token():
    blocks = ids(pack([sequences(5, 5, 3)], PLAIN, "drop"))
    assert blocks == [[100, 101, 102, 103], [104, 105, 106, 107], [108, 109, 110, 111]]


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_b34_batches_of_two_drop_no_more(batch_size, monkeypatch):
    from datasets import Dataset

    dataset = Dataset.from_dict(sequences(5, 5, 3))
    monkeypatch.setattr("hf_linear_attn.training.blocks.READ_BATCH", batch_size)
    blocks = list(pack_dataset(dataset, PLAIN, "drop"))
    assert [len(block) for block in ids(blocks)] == [4, 4, 4]
    assert ids(blocks) == ids(pack([sequences(5, 5, 3)], PLAIN, "drop"))


def test_b34_the_remainder_is_dropped_padded_or_kept():
    padded_layout = PLAIN._replace(pad=PAD)
    assert ids(pack([sequences(5, 5, 3)], PLAIN, "keep"))[-1] == [112]
    padded = list(pack([sequences(5, 5, 3)], padded_layout, "pad"))
    assert ids(padded)[-1] == [112, PAD, PAD, PAD]
    assert padded[-1]["attention_mask"] == [1, 0, 0, 0]
    assert padded[-1]["special_tokens_mask"] == [0, 1, 1, 1]
    assert padded[-1]["word_ids"] == [0, -1, -1, -1]
    assert padded[0]["attention_mask"] == [1, 1, 1, 1]
    for remainder in ("drop", "pad", "keep"):
        assert ids(pack([sequences(4, 4)], padded_layout, remainder)) == ids(
            pack([sequences(8)], PLAIN, "drop")
        )


def test_b34_one_separator_between_texts():
    layout = PLAIN._replace(end=END)
    # The text without a token stands for no document: no second separator.
    batch = sequences(2, 0, 2, 3)
    blocks = ids(pack([batch], layout, "keep"))
    assert blocks == [[100, 101, END, 102], [103, END, 104, 105], [106]]


def test_b34_too_few_tokens_are_an_error_before_training(tokenizer):
    with pytest.raises(ValueError, match=r"train: 3 tokens do not fill one block of 8;"):
        build_examples(splits("abc"), tokenizer, DataArguments(block_size=8))
    # The smallest block of the recipes is 8; packing into 4 alike leaves no short block behind.
    assert ids(pack([sequences(3)], PLAIN, "drop")) == []
    with pytest.raises(ValueError, match="train: the text has no token"):
        build_examples(splits(""), tokenizer, DataArguments(block_size=8))
    for remainder in ("pad", "keep"):
        args = DataArguments(block_size=8, remainder=remainder)
        assert len(build_examples(splits("abc"), tokenizer, args)["train"]) == 1


def test_words_of_a_block_never_share_an_id():
    batch = {
        "input_ids": [[9, 9, 9], [8, 8], [7, 7, 7]],
        "word_ids": [[0, 0, 1], [0, 1], [0, 1, 1]],
    }
    layout = Layout(block_size=6, start=START, end=END)
    blocks = list(pack([batch], layout, "keep"))
    assert ids(blocks) == [[START, 9, 9, 9, END, 8], [START, 8, END, 7, 7, 7]]
    assert blocks[0]["word_ids"] == [-1, 0, 0, 1, -1, 2]
    assert blocks[1]["word_ids"] == [-1, 0, -1, 1, 2, 2]
    assert blocks[0]["special_tokens_mask"] == [1, 0, 0, 0, 1, 0]


def test_blocks_hold_every_token_in_order_and_begin_with_the_start(tokenizer):
    texts = ["Some words, here.", "x", " two  spaces\n\nparagraph ", "end"]
    args = DataArguments(block_size=8, remainder="keep")
    examples = build_examples(splits(*texts), tokenizer, args)["train"]
    rows = ids(examples)
    assert [len(row) for row in rows[:-1]] == [8] * (len(rows) - 1)
    assert all(row[0] == START for row in rows)
    joined = [token for row in rows for token in row[1:]]
    assert tokenizer.decode(joined) == "</s>".join(texts)
    for row in examples:
        masked = [int(token in (START, END)) for token in row["input_ids"]]
        assert row["special_tokens_mask"] == masked
        assert [int(word == -1) for word in row["word_ids"]] == masked


def test_columns_and_types(tokenizer):
    from datasets import List, Value

    plain = build_examples(splits("x" * 20), tokenizer, DataArguments(block_size=8))["train"]
    assert plain.features == {
        "input_ids": List(Value("int32")),
        "special_tokens_mask": List(Value("int8")),
        "word_ids": List(Value("int32")),
    }
    args = DataArguments(block_size=8, remainder="pad")
    padded = build_examples(splits("x" * 20), tokenizer, args)["train"]
    assert padded.features == {**plain.features, "attention_mask": List(Value("int8"))}
    assert {len(row[name]) for row in padded for name in padded.column_names} == {8}


def test_documents_that_are_too_long_become_several_examples(tokenizer):
    args = DataArguments(block_size=8, data_format="documents")
    examples = build_examples(splits("abc", "0123456789ab", "de\nf"), tokenizer, args)["train"]
    decoded = [tokenizer.decode(row) for row in ids(examples)]
    assert decoded == ["<s>abc</s>", "<s>012345</s>", "<s>6789ab</s>", "<s>de\nf</s>"]
    assert examples[0]["special_tokens_mask"] == [1, 0, 0, 0, 1]
    assert examples[2]["word_ids"] == [-1, 0, 0, 0, 0, 1, 1, -1]


def test_lines_are_examples(tokenizer):
    args = DataArguments(block_size=16, data_format="lines")
    documents = splits("one\n\n two\r\n", "three")
    examples = build_examples(documents, tokenizer, args)["train"]
    decoded = [tokenizer.decode(row) for row in ids(examples)]
    assert decoded == ["<s>one</s>", "<s> two</s>", "<s>three</s>"]


def test_split_long_drops_nothing():
    batch = sequences(1, 6, 7, 0, 13)
    pieces = split_long(batch, Layout(block_size=8, start=START, end=END))
    assert [len(piece) for piece in pieces["input_ids"]] == [3, 8, 8, 3, 8, 8, 3]
    kept = [token for piece in pieces["input_ids"] for token in piece[1:-1]]
    assert kept == list(range(100, 127))


def test_special_tokens_in_a_text_are_text(tokenizer):
    text = "a<mask></s><s> <pad>"
    rows = tokenize({"text": [text]}, tokenizer, by_line=False)
    assert min(rows["input_ids"][0]) > 4
    assert tokenizer.decode(rows["input_ids"][0]) == text
    assert min(rows["word_ids"][0]) == 0
    # and the tokenizer itself is as it was
    assert tokenizer("<mask>").input_ids == [START, 4, END]


def test_limits_and_description(tokenizer):
    texts = ["x" * 20, "y" * 20]
    args = DataArguments(block_size=8, max_train_examples=3, max_eval_examples=99)
    examples = build_examples(splits(*texts), tokenizer, args)
    assert (len(examples["train"]), len(examples["validation"])) == (3, 5)
    train, validation = describe(examples).splitlines()
    # 41 tokens with the separator, 7 of them to a block: 5 blocks and 6 tokens.
    assert validation == (
        "validation: 2 documents with 41 tokens, separators included, became 5 full blocks of 8, "
        "start token included; 6 tokens dropped"
    )
    assert train == validation.replace("validation", "train") + "; the first 3 are used"
    args = DataArguments(block_size=8, data_format="lines")
    assert "2 lines with 40 tokens became 8 examples" in describe(
        build_examples(splits(*texts), tokenizer, args)
    )


@pytest.mark.parametrize("data_format", ["blocks", "documents", "lines"])
def test_a_stream_gives_the_same_examples(tokenizer, data_format):
    texts = [f"document {n}\nline" for n in range(20)]
    plain = DataArguments(block_size=16, data_format=data_format, max_train_examples=9)
    streamed = DataArguments(
        block_size=16, data_format=data_format, max_train_examples=9, streaming=True
    )
    whole = build_examples(splits(*texts), tokenizer, plain)
    stream = build_examples(splits(*texts, streaming=True), tokenizer, streamed)
    assert list(stream["train"]) == list(whole["train"])
    assert list(stream["train"]) == list(whole["train"])
    assert list(stream["validation"]) == list(whole["validation"])
    assert "train: a stream" in describe(stream)


def test_a_stream_without_an_example_is_an_error(tokenizer):
    args = DataArguments(block_size=16, streaming=True)
    with pytest.raises(ValueError, match="does not give a single example"):
        build_examples(splits("short", streaming=True), tokenizer, args)


def test_a_second_build_reads_the_cache_and_another_rule_does_not(tokenizer, cache):
    args = DataArguments(block_size=8)
    first = build_examples(splits("x" * 20), tokenizer, args)["train"]
    second = build_examples(splits("x" * 20), tokenizer, args)["train"]
    assert first.cache_files == second.cache_files
    assert str(cache) in first.cache_files[0]["filename"]
    for changed in (DataArguments(block_size=9), DataArguments(block_size=8, remainder="keep")):
        other = build_examples(splits("x" * 20), tokenizer, changed)["train"]
        assert other.cache_files != first.cache_files


def test_the_order_of_the_examples_is_the_same_with_workers(tokenizer):
    texts = [f"document {n}" for n in range(20)]
    one = build_examples(splits(*texts), tokenizer, DataArguments(block_size=16))
    args = DataArguments(block_size=16, preprocessing_num_workers=2)
    assert list(one["train"]) == list(build_examples(splits(*texts), tokenizer, args)["train"])


def test_a_tokenizer_without_separator_is_refused(tokenizer):
    from transformers import PreTrainedTokenizerFast

    bare = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>", mask_token="<mask>"
    )
    with pytest.raises(ValueError, match="lacks a token for the start"):
        build_examples(splits("x" * 20), bare, DataArguments(block_size=8))


def test_examples_of_special_tokens_alone_are_left_out_and_counted():
    """A tokenizer with an unknown token makes such rows; nothing in them could be masked."""
    from datasets import Dataset, DatasetDict
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "one": 5, "two": 6}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="<s>", sep_token="</s>", pad_token="<pad>",
        unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip
    texts = {"train": ["one two", "日本", "two", "§ ¶"], "validation": ["one"]}
    documents = DatasetDict({k: Dataset.from_dict({"text": v}) for k, v in texts.items()})
    args = DataArguments(data_format="lines", block_size=8)
    examples = build_examples(documents, tokenizer, args)
    assert examples["train"]["input_ids"] == [[0, 5, 6, 2], [0, 6, 2]]
    assert "2 of special tokens alone are left out" in describe(examples)
    nothing = DatasetDict(
        {"train": Dataset.from_dict({"text": ["§"]}), "validation": documents["validation"]}
    )
    with pytest.raises(ValueError, match="choose another tokenizer"):
        build_examples(nothing, tokenizer, args)
