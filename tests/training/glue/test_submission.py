"""Predictions are written as the benchmark takes them."""

import numpy as np
import pytest

from hf_linear_attn.training.glue.submission import write_submission
from hf_linear_attn.training.glue.tasks import GLUE_TASKS, TASKS


def written(folder, task, split, logits, order=None):
    task = TASKS[task]
    order = task.labels if order is None else order
    logits = np.array(logits)
    path = write_submission(folder, split, task, order, range(len(logits)), logits)
    return path.name, path.read_text()


@pytest.mark.parametrize(
    ("task", "split", "logits", "name", "lines"),
    [
        ("cola", "test", [[0, 1], [1, 0]], "CoLA.tsv", ["0\t1", "1\t0"]),
        ("mnli", "test", [[0, 0, 1]], "MNLI-m.tsv", ["0\tcontradiction"]),
        ("mnli", "test_mismatched", [[0, 1, 0]], "MNLI-mm.tsv", ["0\tneutral"]),
        ("mnli", "diagnostic", [[0, 1, 0]], "AX.tsv", ["0\tneutral"]),
        ("qnli", "test", [[0, 1]], "QNLI.tsv", ["0\tnot_entailment"]),
        ("rte", "test", [[1, 0]], "RTE.tsv", ["0\tentailment"]),
        ("wnli", "test", [[0, 1]], "WNLI.tsv", ["0\t1"]),
        ("stsb", "test", [[2.5], [-0.3], [5.4]], "STS-B.tsv", ["0\t2.500", "1\t0.000", "2\t5.000"]),
    ],
)  # fmt: skip
def test_official_formats(tmp_path, task, split, logits, name, lines):
    assert written(tmp_path / "new", task, split, logits) == (
        name,
        "\n".join(["index\tprediction", *lines]) + "\n",
    )


def test_numbers_are_those_of_the_official_order(tmp_path):
    _, text = written(tmp_path, "mrpc", "test", [[0, 1]], ("equivalent", "not_equivalent"))
    assert text.endswith("0\t0\n")
    _, text = written(tmp_path, "rte", "test", [[0, 1]], ("not_entailment", "entailment"))
    assert text.endswith("0\tentailment\n")


def test_every_task_of_the_benchmark_has_its_file():
    names = {file for task in GLUE_TASKS for file in TASKS[task].submissions.values()}
    assert names == {
        "CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv", "MNLI-mm.tsv",
        "QNLI.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv",
    }  # fmt: skip
