"""Prepared data: what is cut is counted, what is text stays text, labels follow the model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding, EvalPrediction

from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.data import Checkpoint, prepare_task
from hf_linear_attn.training.glue.examples import Tokenization, build_examples
from hf_linear_attn.training.glue.sources import find_sources
from hf_linear_attn.training.glue.task_choice import task_of
from hf_linear_attn.training.tokenizer import load_or_train_tokenizer
from tests.training.glue.official import write


@pytest.fixture
def tokenizer():
    return load_or_train_tokenizer(None, ["one two"], 261, 16)


def prepare(checkpoint=None, is_decoder=False, **given):
    args = TaskArguments(**given)
    task = task_of(args)
    return prepare_task(
        args,
        task,
        find_sources(args, task),
        checkpoint,
        tokenizer_name=None,
        vocab_size=261,
        is_decoder=is_decoder,
    )


def examples(tokenizer, max_length=16, **columns):
    rows = Dataset.from_dict(columns)
    how = Tokenization(tokenizer, max_length)
    return build_examples(rows, None, how, "train")


def test_long_texts_lose_their_end_and_are_counted(tokenizer):
    made, cut = examples(tokenizer, text=["abc", "a" * 14, "a" * 15, "b" * 40])
    assert cut == 2
    lengths = [len(ids) for ids in made["input_ids"]]
    assert lengths == [5, 16, 16, 16]
    # The special tokens stay.
    assert all(ids[0] == 0 and ids[-1] == 2 for ids in made["input_ids"])


def test_a_tokenizer_does_not_keep_how_the_last_rows_were_cut(tokenizer):
    before = tokenizer.backend_tokenizer.to_str()
    examples(tokenizer, text=["a" * 40])
    assert tokenizer.backend_tokenizer.to_str() == before


def test_of_a_pair_the_longer_text_is_cut_first(tokenizer):
    made, cut = examples(tokenizer, text=["a" * 30, "aa"], text_pair=["bbb", "b"])
    assert cut == 1
    ids = made["input_ids"][0]
    assert tokenizer.decode(ids) == f"<s>{'a' * 9}</s></s>bbb</s>"
    made, _ = examples(tokenizer, text=["aaa"], text_pair=["b" * 30])
    assert tokenizer.decode(made["input_ids"][0]) == f"<s>aaa</s></s>{'b' * 9}</s>"


def test_special_tokens_in_a_text_are_text(tokenizer):
    made, _ = examples(tokenizer, text=["<s></s>"])
    assert made["input_ids"][0][1:-1] == [
        tokenizer.convert_tokens_to_ids(character) for character in "<s></s>"
    ]


def test_the_same_rows_at_another_length_are_tokenized_again(glue):
    for length in (16, 12, 16):
        data = prepare(task="rte", data_dir=str(glue), max_length=length)
        assert max(len(row["input_ids"]) for row in data.train) == length


def test_b33_padding_is_masked_and_nothing_else(tokenizer):
    made, _ = examples(tokenizer, text=["ab", "abcdef"])
    batch = DataCollatorWithPadding(tokenizer)([made[0], made[1]])
    assert batch["input_ids"].shape == (2, 8)
    assert batch["attention_mask"].tolist() == [[1] * 4 + [0] * 4, [1] * 8]
    assert batch["input_ids"][0, 3] == tokenizer.eos_token_id


def test_the_description_says_what_was_found(glue):
    data = prepare(task="qqp", data_dir=str(glue), max_length=16)
    text = "\n".join(data.description)
    assert "Files: QQP/train.tsv, QQP/dev.tsv, QQP/test.tsv" in text
    assert "train: 12 rows; not_duplicate 6, duplicate 6; 12 cut to 16 tokens" in text
    assert "test: 4 rows; labels hidden; none above 16 tokens" in text
    assert "rows that are cut off in the files and left out: 1" in text
    assert data.baseline["validation"] == pytest.approx({"accuracy": 0.5, "f1": 0, "score": 0.25})
    assert data.constant == "not_duplicate"


def test_empty_texts_are_counted(tmp_path):
    write(tmp_path / "mine.csv", "text,label", ",a", "one,b", "two,a")
    data = prepare(
        task="custom", train_file="mine.csv", validation_file="mine.csv",
        text_column="text", label_column="label",
    )  # fmt: skip
    assert "empty texts: 1" in data.description[1]


def test_a_checkpoint_with_the_classes_in_another_order_numbers_the_rows(glue):
    given = {"task": "rte", "data_dir": str(glue)}
    official = prepare(**given)
    swapped = prepare(Checkpoint("runs/x", ("not_entailment", "entailment")), **given)
    assert swapped.order == ("not_entailment", "entailment")
    theirs = torch.tensor(swapped.train["labels"][:])
    assert torch.equal(theirs, 1 - torch.tensor(official.train["labels"][:]))
    assert "rows are mapped by name" in swapped.description[-1]
    assert official.fingerprint["training"] != swapped.fingerprint["training"]


def test_a_regression_has_numbers(glue):
    data = prepare(task="stsb", data_dir=str(glue))
    assert data.order == ()
    assert data.train["labels"][:3] == [0.0, 1.0, 2.0]
    assert data.baseline["validation"] == {"pearson": 0, "spearmanr": 0, "score": 0}
    assert data.constant == "2.500"


def test_a_decoder_reads_texts_without_an_end_token(glue):
    data = prepare(task="cola", data_dir=str(glue), is_decoder=True)
    ids = data.train[0]["input_ids"]
    assert ids[0] == data.tokenizer.bos_token_id
    assert data.tokenizer.eos_token_id not in ids


def test_labels_are_part_of_the_fingerprint(glue):
    before = prepare(task="sst2", data_dir=str(glue)).fingerprint
    file = glue / "SST-2/train.tsv"
    file.write_text(file.read_text().replace("film 1 \t1", "film 1 \t0"))
    after = prepare(task="sst2", data_dir=str(glue)).fingerprint
    assert after["training"] != before["training"]
    assert after["validation"] == before["validation"]


def test_one_class_only_is_refused(glue):
    write(glue / "SST-2/train.tsv", "sentence\tlabel", "good\t1", "fine\t1")
    with pytest.raises(ValueError, match="all 2 training rows are of class 'positive'"):
        prepare(task="sst2", data_dir=str(glue))


def test_evaluation_rows_with_hidden_labels_are_refused(glue):
    args = {"task": "custom", "text_column": "sentence", "label_column": "label"}
    write(glue / "train.csv", "sentence,label", "good,1", "bad,0")
    write(glue / "hidden.csv", "sentence,label", "good,", "bad,")
    files = {"train_file": str(glue / "train.csv"), "validation_file": str(glue / "hidden.csv")}
    with pytest.raises(ValueError, match="labels of the validation rows are hidden"):
        prepare(**args, **files)


CUSTOM = {"task": "custom", "text_column": "text", "label_column": "label"}


def custom_files(*test: str, **given):
    """Most training rows are spam, most evaluation rows ham."""
    lines = [f"a {i},{'ham' if i < 2 else 'spam'}" for i in range(6)]
    write(Path("train.csv"), "text,label", *lines)
    write(Path("dev.csv"), "text,label", "b,ham", "c,ham", "d,ham", "e,spam")
    write(Path("test.csv"), "text,label", *test)
    files = {"train_file": "train.csv", "validation_file": "dev.csv", "test_file": "test.csv"}
    return {**CUSTOM, **files, **given}


def test_some_missing_labels_are_no_hidden_ones():
    with pytest.raises(ValueError, match=r"test, row 1: the label is missing \(1 of 3 rows\)"):
        prepare(**custom_files("x,ham", "y,", "z,spam"))
    data = prepare(**custom_files("x,", "y,", "z,"))
    assert "test: 3 rows; labels hidden" in "\n".join(data.description)
    assert "labels" not in data.test["test"].column_names


def test_the_constant_answer_comes_from_the_training_rows(glue):
    data = prepare(**custom_files("x,ham", "y,spam", "z,spam"))
    assert data.constant == "spam"
    assert data.baseline["validation"]["accuracy"] == 0.25
    # Labelled test rows have theirs too.
    assert data.baseline["test"]["accuracy"] == pytest.approx(2 / 3)
    dev = glue / "STS-B/dev.tsv"
    header, *rest = dev.read_text().splitlines()
    write(dev, header, *(line for line in rest if not line.endswith("0.000")))
    similarity = prepare(task="stsb", data_dir=str(glue))
    assert similarity.constant == "2.500"


@pytest.mark.parametrize("asked", [None, "ham", "spam"])
def test_f1_is_about_the_same_class_whoever_numbers_them(asked):
    given = custom_files("x,ham", "y,spam", metrics=["f1"], positive_class=asked)
    labels = np.array([1, 0, 0, 0])
    logits = np.eye(2)[[1, 1, 0, 0]]
    own = prepare(**given)
    swapped = prepare(Checkpoint("x", ("spam", "ham")), **given)
    assert own.task.positive == swapped.task.positive == (asked or "spam")
    measured = own.scores(EvalPrediction(logits, labels))["f1"]
    assert measured == pytest.approx(0.8 if asked == "ham" else 2 / 3)
    again = swapped.scores(EvalPrediction(logits[:, ::-1], 1 - labels))["f1"]
    assert again == pytest.approx(measured)


def test_samples_are_named(tmp_path):
    for split in ("train", "dev"):
        rows = [{"premise": "a", "hypothesis": "b", "label": label} for label in (0, 1, 2)]
        write(tmp_path / f"MNLI/sample_{split}.jsonl", *map(json.dumps, rows))
    data = prepare(task="mnli", data_dir=str(tmp_path))
    assert data.samples == {"validation"}
    assert "validation (a sample): 3 rows" in "\n".join(data.description)


def test_how_labels_were_read_is_said():
    lines = [f"a film {i},{i % 5 + 1}" for i in range(10)]
    write(Path("stars.csv"), "text,label", *lines)
    data = prepare(task="amazon", train_file="stars.csv", validation_file="stars.csv")
    assert "column 'label' numbers the classes 1 to 5 from 1" in data.description
    assert "1 2, 2 2, 3 2, 4 2, 5 2" in data.description[1]
