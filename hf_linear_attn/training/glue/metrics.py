"""Metrics as `evaluate.Metric` on scikit-learn and scipy: nothing is fetched from anywhere.

`evaluate` takes a while to import, so this module is imported where it is used.

    Accuracy(keep_in_memory=True).compute(predictions=[0, 1], references=[0, 0])
"""

from collections.abc import Mapping
from typing import Any

import evaluate
import numpy as np
from datasets import Features, Value
from scipy import stats
from sklearn import metrics as scores

_CITATION = "Wang et al. 2018, GLUE: A Multi-Task Benchmark, https://arxiv.org/abs/1804.07461"


class _Labels(evaluate.Metric):
    """What the metrics of classes share: predictions and references are int (rows,)."""

    def _info(self) -> evaluate.MetricInfo:
        return _info(self, "int64")


class _Numbers(evaluate.Metric):
    """What the metrics of numbers share: predictions and references are float (rows,)."""

    def _info(self) -> evaluate.MetricInfo:
        return _info(self, "float64")


class Accuracy(_Labels):
    """Share of right answers."""

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"accuracy": float(scores.accuracy_score(references, predictions))}


class F1(_Labels):
    """Harmonic mean of precision and recall of one class; 0 where it was never predicted.

    `compute(..., positive=1)` names the class.
    """

    def _compute(self, predictions: Any, references: Any, positive: int = 1) -> dict[str, float]:
        score = scores.f1_score(
            np.asarray(references) == positive,
            np.asarray(predictions) == positive,
            zero_division=0.0,  # pyright: ignore[reportArgumentType]
        )
        return {"f1": float(score)}


class MatthewsCorrelation(_Labels):
    """Matthews's correlation, −1 to 1; 0 for constant predictions."""

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        score = scores.matthews_corrcoef(references, predictions)
        return {"matthews_correlation": float(score)}


class Pearson(_Numbers):
    """Pearson's correlation; 0 where predictions or references are constant."""

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"pearson": _correlation(stats.pearsonr, predictions, references)}


class Spearman(_Numbers):
    """Spearman's rank correlation; 0 where predictions or references are constant."""

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"spearmanr": _correlation(stats.spearmanr, predictions, references)}


METRICS: Mapping[str, type[evaluate.Metric]] = {
    "accuracy": Accuracy,
    "f1": F1,
    "matthews_correlation": MatthewsCorrelation,
    "pearson": Pearson,
    "spearmanr": Spearman,
}


def _info(metric: evaluate.Metric, kind: str) -> evaluate.MetricInfo:
    features = Features({"predictions": Value(kind), "references": Value(kind)})
    description = (type(metric).__doc__ or "").strip()
    return evaluate.MetricInfo(description=description, citation=_CITATION, features=features)


def _correlation(measure: Any, predictions: Any, references: Any) -> float:
    first, second = (np.asarray(x, dtype=np.float64) for x in (predictions, references))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0  # not defined; a constant says nothing about the other
    return float(measure(first, second).statistic)
