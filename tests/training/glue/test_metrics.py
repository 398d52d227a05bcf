"""Metrics equal their formulas, offline, and are defined where the formula is not."""

import math
import socket

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_linear_attn.training.glue import metrics
from hf_linear_attn.training.glue.arguments import METRIC_NAMES
from hf_linear_attn.training.glue.scores import TaskScores, check_metrics
from hf_linear_attn.training.glue.tasks import TASKS


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a metric asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def value(name, predictions, references, **options):
    metric = metrics.METRICS[name](keep_in_memory=True)
    return metric.compute(predictions=predictions, references=references, **options)[name]


def test_metrics_equal_their_formulas():
    guesses, labels = [1, 1, 1, 0, 0, 1, 0, 0], [1, 0, 1, 1, 0, 1, 0, 1]
    tp, fp, fn, tn = 3, 1, 2, 2
    assert value("accuracy", guesses, labels) == 5 / 8
    assert value("f1", guesses, labels) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    # Of the other class.
    assert value("f1", guesses, labels, positive=0) == pytest.approx(2 * tn / (2 * tn + fp + fn))
    matthews = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert value("matthews_correlation", guesses, labels) == pytest.approx(matthews)
    x, y = [0.5, 2.0, 3.5, 1.0], [1.0, 2.0, 5.0, 0.0]
    assert value("pearson", x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert value("spearmanr", x, y) == pytest.approx(0.8)


def test_constant_predictions_have_a_value():
    assert value("pearson", [2.0, 2.0, 2.0], [0.0, 1.0, 5.0]) == 0
    assert value("spearmanr", [2.0, 2.0, 2.0], [0.0, 1.0, 5.0]) == 0
    assert value("matthews_correlation", [1, 1, 1], [0, 1, 1]) == 0
    assert value("f1", [0, 0, 0], [0, 1, 1]) == 0


def test_batches_and_combinations_work_as_evaluate_has_them():
    import evaluate

    metric = metrics.Accuracy(keep_in_memory=True)
    metric.add_batch(predictions=[0, 1], references=[0, 0])
    metric.add_batch(predictions=[1], references=[1])
    assert metric.compute() == {"accuracy": pytest.approx(2 / 3)}
    both = evaluate.combine([metrics.Accuracy(), metrics.F1()])
    result = both.compute(predictions=[0, 1], references=[1, 1])
    assert result == {"accuracy": 0.5, "f1": pytest.approx(2 / 3)}
    result = both.compute(predictions=[0, 0, 1], references=[0, 1, 0], positive=0)
    assert result == {"accuracy": pytest.approx(1 / 3), "f1": 0.5}


def test_the_names_of_arguments_are_those_of_the_metrics():
    assert set(METRIC_NAMES) == set(metrics.METRICS)
    for task in TASKS.values():
        assert set(task.metrics) <= set(METRIC_NAMES)


def test_scores_are_glues_and_follow_the_classes_by_name():
    labels = np.array([0, 1, 1, 1])
    logits = np.array([[0.0, 1], [0, 1], [0, 1], [1, 0]])
    official = TaskScores(TASKS["mrpc"], TASKS["mrpc"].labels)(EvalPrediction(logits, labels))
    assert official["accuracy"] == 0.5
    assert official["f1"] == pytest.approx(2 / 3)
    assert official["score"] == pytest.approx((0.5 + 2 / 3) / 2)
    swapped = TaskScores(TASKS["mrpc"], TASKS["mrpc"].labels[::-1])
    again = swapped(EvalPrediction(logits[:, ::-1], 1 - labels))
    assert again == pytest.approx(official)


def test_the_loss_is_the_mean_over_rows():
    import torch

    logits, labels = np.random.default_rng(0).normal(size=(7, 2)) * 30, np.array([0, 1] * 3 + [1])
    scores = TaskScores(TASKS["sst2"], TASKS["sst2"].labels)(EvalPrediction(logits, labels))
    expected = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels))
    assert scores["loss"] == pytest.approx(expected.item())
    numbers = TaskScores(TASKS["stsb"], ())(EvalPrediction(logits[:, :1], labels.astype("f4")))
    assert numbers["loss"] == pytest.approx(np.square(logits[:, 0] - labels).mean())


def test_the_constant_answer_is_the_training_rows_majority_or_mean():
    scores = TaskScores(TASKS["sst2"], TASKS["sst2"].labels)
    # Most evaluation rows are of the other class, which nobody can know before.
    training, labels = np.array([1, 1, 0]), np.array([0, 0, 0, 1, 1])
    assert scores.of_constant(training, labels)["accuracy"] == 0.4
    similarity = TaskScores(TASKS["stsb"], ())
    assert similarity.constant(np.array([1.0, 4.0])) == 2.5
    assert similarity.of_constant(np.array([1.0, 4.0]), np.array([0.0, 5.0]))["pearson"] == 0


@pytest.mark.parametrize(
    ("names", "order"),
    [(["f1"], "abc"), (["pearson"], "ab"), (["accuracy"], "")],
)
def test_metrics_that_do_not_fit_are_refused(names, order):
    with pytest.raises(ValueError, match="metrics: "):
        check_metrics(names, list(order))
