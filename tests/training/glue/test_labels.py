"""Labels are found by name, whoever numbers them, and wrong ones never reach the training."""

import numpy as np
import pytest
from datasets import Dataset

import hf_linear_attn as hla
from hf_linear_attn.training.glue.arguments import TaskArguments
from hf_linear_attn.training.glue.labels import (
    check_variety,
    checkpoint_classes,
    class_names,
    label_fields,
    order_of_classes,
    positive_class,
    targets,
)
from hf_linear_attn.training.glue.splits import choose_splits
from hf_linear_attn.training.glue.task_choice import task_of
from hf_linear_attn.training.glue.tasks import GLUE_TASKS, TASKS


def rows(*labels: str) -> Dataset:
    texts = [f"text {i}" for i in range(len(labels))]
    return Dataset.from_dict(
        {"text": texts, "label": list(labels), "index": list(range(len(labels)))}
    )


def config(names, architecture="CosformerForSequenceClassification"):
    made = hla.CosformerConfig(**label_fields(names))
    made.architectures = [architecture]
    return made


def test_the_official_order_of_the_classes():
    # As in nyu-mll/glue; a change of any of these would spoil submissions silently.
    assert {name: TASKS[name].labels for name in GLUE_TASKS} == {
        "cola": ("unacceptable", "acceptable"),
        "sst2": ("negative", "positive"),
        "mrpc": ("not_equivalent", "equivalent"),
        "stsb": (),
        "qqp": ("not_duplicate", "duplicate"),
        "mnli": ("entailment", "neutral", "contradiction"),
        "qnli": ("entailment", "not_entailment"),
        "rte": ("entailment", "not_entailment"),
        "wnli": ("not_entailment", "entailment"),
    }


def test_names_become_numbers_in_the_order_that_counts():
    given = rows("positive", "negative", "positive")
    task = TASKS["sst2"]
    assert targets(given, "train", task, ("negative", "positive")).tolist() == [1, 0, 1]
    assert targets(given, "train", task, ("positive", "negative")).tolist() == [0, 1, 0]


def test_a_checkpoint_with_the_same_names_keeps_its_order():
    names, theirs = ("entailment", "not_entailment"), ("not_entailment", "entailment")
    assert order_of_classes(names, checkpoint_classes(config(theirs)), "x") == theirs
    assert order_of_classes(names, None, "x") == names
    assert order_of_classes((), checkpoint_classes(config(())), "x") == ()


def test_a_model_without_a_classifier_has_no_classes():
    assert checkpoint_classes(config(("a", "b"), "CosformerForMaskedLM")) is None


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(("entailment", "neutral", "contradiction"), id="other-number"),
        pytest.param(("no", "yes"), id="other-names"),
        pytest.param(("LABEL_0", "LABEL_1"), id="without-names"),
        pytest.param((), id="regression"),
    ],
)
def test_a_checkpoint_of_another_task_is_refused(theirs):
    with pytest.raises(ValueError, match=r"task and model do not agree.*--new_head"):
        order_of_classes(TASKS["rte"].labels, checkpoint_classes(config(theirs)), "runs/other")


def test_a_checkpoint_that_contradicts_itself_is_refused():
    made = config(("a", "b"))
    made.label2id = {"a": 1, "b": 0}
    with pytest.raises(ValueError, match="contradict"):
        checkpoint_classes(made)


def test_classes_of_a_custom_task_are_sorted_numbers_by_value():
    task = task_of(
        TaskArguments(task="custom", train_file="x", text_column="text", label_column="label")
    )
    assert class_names(task, rows("spam", "ham", "spam")) == ("ham", "spam")
    assert class_names(task, rows("10", "9", "2")) == ("2", "9", "10")


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("sst2", ["positive", "", "negative"], "train, row 1: the label is missing"),
        ("sst2", ["", ""], "are hidden"),
        ("sst2", ["positive", "negativee"], "row 1: label 'negativee' is unknown.*'negative'"),
        ("stsb", ["1.0", "5.2"], "row 1: label 5.2 lies outside of 0 to 5"),
        ("stsb", ["1.0", "-0.1"], "lies outside"),
        ("stsb", ["1.0", "nan"], "lies outside"),
        ("stsb", ["1.0", "much"], "is no number"),
    ],
)
def test_wrong_labels_are_refused(task, labels, message):
    with pytest.raises(ValueError, match=message):
        targets(rows(*labels), "train", TASKS[task], TASKS[task].labels)


def test_training_rows_of_one_class_are_refused():
    with pytest.raises(ValueError, match="all 3 training rows are of class 'b'"):
        check_variety(np.array([1, 1, 1]), ("a", "b"))
    with pytest.raises(ValueError, match=r"labelled 2\.5"):
        check_variety(np.array([2.5, 2.5]), ())


def custom(**given):
    columns = {"text_column": "text", "label_column": "label"}
    return TaskArguments(task="custom", train_file="x", **columns, **given)


def test_equal_texts_never_fall_on_both_sides():
    texts = [f"text {i % 20}" for i in range(60)]
    train = Dataset.from_dict({"text": texts, "label": ["a", "b"] * 30, "index": list(range(60))})
    args = custom(validation_fraction=0.25)
    chosen = choose_splits({"train": train}, task_of(args), args)
    held_out = set(chosen.evaluation["validation"]["text"])
    assert len(held_out) == 5
    assert not held_out & set(chosen.train["text"])
    assert "held out" in chosen.remarks[0]


def test_samples_are_drawn_from_everywhere_and_are_always_the_same():
    given = rows(*["a"] * 50, *["b"] * 50)
    args = custom(max_train_examples=20, max_eval_examples=10)
    both = [
        choose_splits({"train": given, "validation": given}, task_of(args), args) for _ in range(2)
    ]
    assert len(both[0].train) == 20
    assert len(both[0].evaluation["validation"]) == 10
    assert set(both[0].train["label"]) == {"a", "b"}
    assert both[0].train["index"][:] == both[1].train["index"][:]


def test_imdb_is_evaluated_on_its_test_rows_unless_rows_are_held_out():
    given = {"train": rows("neg", "pos", "neg"), "test": rows("pos", "neg")}
    args = TaskArguments(task="imdb")
    chosen = choose_splits(given, TASKS["imdb"], args)
    assert list(chosen.evaluation) == ["test"]
    assert chosen.shows_test
    args = TaskArguments(task="imdb", validation_fraction=0.3)
    chosen = choose_splits(given, TASKS["imdb"], args)
    assert list(chosen.evaluation) == ["validation"]
    assert list(chosen.test) == ["test"]
    assert not chosen.shows_test


def test_a_share_is_held_out_only_where_there_are_no_evaluation_rows():
    given = {"train": rows("a", "b"), "validation": rows("a", "b")}
    args = custom(validation_fraction=0.5)
    with pytest.raises(ValueError, match="evaluation rows of its own"):
        choose_splits(given, task_of(args), args)


def test_a_config_may_name_its_classes_without_numbering_them():
    made = config(("b", "a"))
    made.label2id = None
    assert checkpoint_classes(made) == ("b", "a")
    made.id2label = {0: "a", 1: "a"}
    with pytest.raises(ValueError, match="names a class twice"):
        checkpoint_classes(made)


def test_classes_without_names_can_be_given_theirs():
    message = r'without names.*id2label into its config.json, such as {"0": "entailment", .*or pass'
    with pytest.raises(ValueError, match=message):
        order_of_classes(TASKS["rte"].labels, ("LABEL_0", "LABEL_1"), "x")


def test_the_class_of_f1_goes_by_its_name():
    f1 = custom(metrics=["accuracy", "f1"])
    assert positive_class(task_of(f1), ("ham", "spam"), None) == "spam"
    assert positive_class(task_of(f1), ("ham", "spam"), "ham") == "ham"
    assert positive_class(task_of(custom()), ("ham", "spam"), None) is None
    assert positive_class(TASKS["mrpc"], TASKS["mrpc"].labels, None) == "equivalent"
    with pytest.raises(ValueError, match=r"got 'spamm', expected one of ham, spam.*'spam'"):
        positive_class(task_of(f1), ("ham", "spam"), "spamm")
    with pytest.raises(ValueError, match="positive_class is for f1"):
        custom(positive_class="spam")


def test_rows_are_named_as_in_their_file():
    given = rows("positive", "negative", "odd").select([2, 0])
    with pytest.raises(ValueError, match="row 2: label 'odd' is unknown"):
        targets(given, "train", TASKS["sst2"], TASKS["sst2"].labels)


def test_smaller_evaluations_are_samples():
    given = {"train": rows("a", "b"), "validation": rows("a", "b", "a")}
    args = custom(max_eval_examples=2)
    assert choose_splits(given, task_of(args), args).samples == {"validation"}
    args = custom(max_eval_examples=3)
    assert choose_splits(given, task_of(args), args).samples == set()
