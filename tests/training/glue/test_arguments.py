"""Arguments of classification runs: what cannot be is said in one line."""

import pytest

from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.task_choice import task_of
from hf_linear_attn.training.glue.tasks import GLUE_TASKS

CUSTOM = {
    "task": "custom",
    "train_file": "mine.csv",
    "text_column": "body",
    "label_column": "kind",
}


def test_tasks_and_seeds_are_written_with_commas():
    args = TaskArguments(task="rte, cola", seeds="1, 2,3")
    assert args.task_names() == ("rte", "cola")
    assert args.seed_numbers() == [1, 2, 3]
    assert args.is_suite
    assert TaskArguments(task="all").task_names() == GLUE_TASKS
    assert not TaskArguments(task="rte").is_suite
    assert TaskArguments(task="rte", seeds="4").is_suite


def test_named_columns_replace_those_of_the_task():
    task = task_of(TaskArguments(task="sst2", text_column="body", label_column="polarity"))
    assert task.text_columns == (("body",),)
    assert task.label_columns == {"polarity": "ids"}
    task = task_of(TaskArguments(**CUSTOM, text_pair_column="other", class_names=["b", "a"]))
    assert task.text_columns == (("body",), ("other",))
    assert task.labels == ("b", "a")
    task = task_of(TaskArguments(**CUSTOM, problem="regression"))
    assert task.is_regression
    assert task.metrics == ("pearson", "spearmanr")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "sst-2"}, "did you mean 'sst2'"),
        ({"task": "colla"}, "did you mean 'cola'"),
        ({"task": ","}, "expected a name"),
        ({"seeds": "1,two"}, "expected whole numbers"),
        ({"seeds": "1,1"}, "expected different numbers"),
        ({"seeds": "1.5"}, "expected whole numbers"),
        ({"seeds": "-1"}, "expected whole numbers"),
        ({"task": "rte", "data_dir": "a", "dataset_name": "b"}, "give one of --data_dir"),
        ({"data_dir": "a"}, "name the --task"),
        ({"validation_file": "a.csv"}, "needs --train_file"),
        ({"dataset_config_name": "a"}, "needs --dataset_name"),
        ({"task": "all", "train_file": "a.csv"}, "rows of one task"),
        ({"task": "custom"}, "needs --text_column and --label_column"),
        ({**CUSTOM, "train_file": None}, "needs --train_file or --dataset_name"),
        ({"task": "rte", "class_names": ["a", "b"]}, "class_names is for --task custom"),
        ({"task": "rte", "problem": "regression"}, "problem is for --task custom"),
        ({**CUSTOM, "class_names": ["a"]}, "two or more different"),
        ({**CUSTOM, "class_names": ["a", "a"]}, "two or more different"),
        ({**CUSTOM, "class_names": ["a", "b"], "problem": "regression"}, "has none"),
        ({**CUSTOM, "metrics": ["accuracyy"]}, "did you mean 'accuracy'"),
        ({"task": "rte,cola", "text_column": "a"}, "columns can be named for one task"),
        ({**CUSTOM, "label_column": "body"}, "got body, body, expected different columns"),
        ({**CUSTOM, "text_pair_column": "body"}, "got body, body, kind, expected different"),
        ({"preprocessing_num_workers": 10**9}, "got 1000000000, expected 1024 at most"),
        ({"max_length": 4}, "expected 8 or more"),
        ({"validation_fraction": 1.0}, "above 0 and below 1"),
        ({"max_train_examples": 0}, "expected 1 or more"),
        ({**CUSTOM, "validation_file": "b.csv", "validation_fraction": 0.1}, "not both"),
    ],
)
def test_contradictions_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        TaskArguments(**given)


def test_a_second_text_needs_a_first():
    with pytest.raises(ValueError, match="needs --text_column"):
        task_of(TaskArguments(task="rte", text_pair_column="other"))
