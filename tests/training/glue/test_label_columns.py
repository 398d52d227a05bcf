"""A column of labels is read as names or as numbers, never as some of each."""

import json
import math

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.columns import Named, unify_splits
from hf_linear_attn.training.glue.labels import class_names, targets
from hf_linear_attn.training.glue.rows import read_rows
from hf_linear_attn.training.glue.sources import find_sources
from hf_linear_attn.training.glue.task_choice import task_of
from hf_linear_attn.training.glue.tasks import TASKS
from tests.training.glue.official import write


def jsonl(name, column, *labels, text="text"):
    rows = [{text: f"text {i}", column: label} for i, label in enumerate(labels)]
    write(name, *map(json.dumps, rows))
    return str(name)


def read(**given):
    args = TaskArguments(**given)
    task = task_of(args)
    return read_rows(find_sources(args, task), task)


def labels(split="train", **given):
    return read(**given).splits[split]["label"][:]


CUSTOM = {"task": "custom", "text_column": "text", "label_column": "label"}


@pytest.mark.parametrize(
    ("given", "first"), [([1, 2, 3, 4, 5], 1), ([0, 1, 2, 3, 4], 0), ([3.0, 5.0], 1), ([0, 2], 0)]
)
def test_stars_are_told_from_numbers_by_the_whole_column(tmp_path, given, first):
    rows = read(task="amazon", train_file=jsonl(tmp_path / "a.jsonl", "label", *given))
    assert rows.splits["train"]["label"][:] == [str(int(n) + 1 - first) for n in given]
    assert rows.remarks == (f"column 'label' numbers the classes 1 to 5 from {first}",)


def test_all_splits_are_one_column(tmp_path):
    files = {
        "train_file": jsonl(tmp_path / "a.jsonl", "label", 1, 5),
        "validation_file": jsonl(tmp_path / "b.jsonl", "label", 2, 4),
    }
    assert labels("validation", task="amazon", **files) == ["2", "4"]
    files["validation_file"] = jsonl(tmp_path / "c.jsonl", "label", 0, 4)
    with pytest.raises(ValueError, match="holds 0 to 5, expected 0 to 4 or 1 to 5 in all rows"):
        labels(task="amazon", **files)


def test_stars_that_may_be_numbers_are_refused(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", "label", 1, 2, 3, 4)
    with pytest.raises(ValueError, match=r"holds 1, 2, 3, 4, which may be.*rename the column"):
        labels(task="amazon", train_file=file)


@pytest.mark.parametrize("value", ["5.0", 5.0, " 5 ", 5, "05"])
def test_a_rating_may_be_written_as_a_fraction(tmp_path, value):
    file = jsonl(tmp_path / "a.jsonl", "rating", value)
    assert labels(task="amazon", train_file=file) == ["5"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            [0, 2], "label '2' is unknown, expected 0 to 1 or one of negative", id="above"
        ),
        pytest.param([0, -3], "label '-3' is unknown", id="below"),
        pytest.param(["positive", "1"], r"holds names \('positive'\) and numbers", id="mixed"),
    ],
)
def test_numbers_without_a_class_are_refused(tmp_path, given, message):
    file = jsonl(tmp_path / "a.jsonl", "label", *given, text="sentence")
    with pytest.raises(ValueError, match=message):
        labels(task="sst2", train_file=file)


def test_a_column_of_names_and_one_of_truth_values_are_read(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", "label", "positive", "negative", text="sentence")
    assert labels(task="sst2", train_file=file) == ["positive", "negative"]
    file = jsonl(tmp_path / "b.jsonl", "label", True, False, text="sentence")
    assert labels(task="sst2", train_file=file) == ["positive", "negative"]
    write(tmp_path / "c.csv", "sentence,label", "good,True", "bad,False")
    assert labels(task="sst2", train_file=str(tmp_path / "c.csv")) == ["positive", "negative"]
    write(tmp_path / "d.csv", "sentence,label", "good,01", "bad,0.0")
    assert labels(task="sst2", train_file=str(tmp_path / "d.csv")) == ["positive", "negative"]


def test_a_data_sets_own_numbers_count_from_zero():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["1", "2", "3"])})
    rows = Dataset.from_dict({"text": ["a", "b"], "label": [1, 2]}, features=features)
    unified, _ = unify_splits({"train": Named(rows, "x")}, TASKS["amazon"])
    assert unified["train"]["label"][:] == ["2", "3"]


def test_a_number_that_is_none_is_a_missing_label(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", "label", 1.0, math.nan, 0.0)
    rows = read(**CUSTOM, train_file=file).splits["train"]
    assert rows["label"][:] == ["1", "", "0"]
    task = task_of(TaskArguments(**CUSTOM, train_file=file))
    assert class_names(task, rows) == ("0", "1")
    with pytest.raises(ValueError, match=r"train, row 1: the label is missing \(1 of 3 rows\)"):
        targets(rows, "train", task, ("0", "1"))


def test_fractions_are_no_classes(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", "label", 0.5, 1.0)
    with pytest.raises(ValueError, match=r"holds fractions \(0.5\).*--problem regression"):
        labels(**CUSTOM, train_file=file)
    assert labels(**CUSTOM, train_file=file, problem="regression") == ["0.5", "1"]
    write(tmp_path / "b.csv", "text,label", "a,0.5", "b,1.25")
    csv_file = str(tmp_path / "b.csv")
    with pytest.raises(ValueError, match="holds fractions"):
        labels(**CUSTOM, train_file=csv_file)
    assert labels(**CUSTOM, train_file=csv_file, class_names=["0.5", "1.25"]) == ["0.5", "1.25"]


def test_a_training_file_without_any_label_says_so(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", "label", None, None)
    rows = read(**CUSTOM, train_file=file).splits["train"]
    with pytest.raises(ValueError, match="all 2 labels in column 'label' are missing"):
        class_names(task_of(TaskArguments(**CUSTOM, train_file=file)), rows)


@pytest.mark.parametrize("given", [["00", "01"], ["True", "False"], ["1.0", "1"], ["NA", ""]])
def test_cells_of_a_csv_are_text(tmp_path, given):
    write(tmp_path / "a.csv", "text,label", *(f"00{i},{label}" for i, label in enumerate(given)))
    rows = read(**CUSTOM, train_file=str(tmp_path / "a.csv")).splits["train"]
    assert rows["text"][:] == ["000", "001"]
    assert rows["label"][:] == given
