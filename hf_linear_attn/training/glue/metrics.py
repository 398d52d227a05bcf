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


class _Measure(evaluate.Metric):
    """What the metrics share: predictions and references are (rows,)."""

    key = ""
    kind = "int64"
    is_of_a_class = False

    def _info(self) -> evaluate.MetricInfo:
        features = Features({"predictions": Value(self.kind), "references": Value(self.kind)})
        description = (type(self).__doc__ or "").strip()
        return evaluate.MetricInfo(description=description, citation=_CITATION, features=features)

    def _compute(
        self, *, predictions: Any = None, references: Any = None, positive: int = 1, **kwargs: Any
    ) -> dict[str, float]:
        # `evaluate.combine` hands every option to every metric, also those of no class.
        options = {"positive": positive} if self.is_of_a_class else {}
        return {self.key: self.measure(predictions, references, **options, **kwargs)}

    def measure(self, predictions: Any, references: Any) -> float:
        """The figure itself."""
        raise NotImplementedError


class Accuracy(_Measure):
    """Share of right answers."""

    key = "accuracy"

    def measure(self, predictions: Any, references: Any) -> float:
        """Of int (rows,)."""
        return float(scores.accuracy_score(references, predictions))


class F1(_Measure):
    """Harmonic mean of precision and recall of one class; 0 where it was never predicted.

    `compute(..., positive=1)` names the class.
    """

    key = "f1"
    is_of_a_class = True

    def measure(self, predictions: Any, references: Any, positive: int = 1) -> float:
        """Of int (rows,)."""
        score = scores.f1_score(
            np.asarray(references) == positive,
            np.asarray(predictions) == positive,
            zero_division=0.0,  # pyright: ignore[reportArgumentType]
        )
        return float(score)


class MatthewsCorrelation(_Measure):
    """Matthews's correlation, −1 to 1; 0 for constant predictions."""

    key = "matthews_correlation"

    def measure(self, predictions: Any, references: Any) -> float:
        """Of int (rows,)."""
        return float(scores.matthews_corrcoef(references, predictions))


class Pearson(_Measure):
    """Pearson's correlation; 0 where predictions or references are constant."""

    key = "pearson"
    kind = "float64"

    def measure(self, predictions: Any, references: Any) -> float:
        """Of float (rows,)."""
        return _correlation(stats.pearsonr, predictions, references)


class Spearman(_Measure):
    """Spearman's rank correlation; 0 where predictions or references are constant."""

    key = "spearmanr"
    kind = "float64"

    def measure(self, predictions: Any, references: Any) -> float:
        """Of float (rows,)."""
        return _correlation(stats.spearmanr, predictions, references)


METRICS: Mapping[str, type[evaluate.Metric]] = {
    metric.key: metric for metric in (Accuracy, F1, MatthewsCorrelation, Pearson, Spearman)
}


def _correlation(measure: Any, predictions: Any, references: Any) -> float:
    first, second = (np.asarray(x, dtype=np.float64) for x in (predictions, references))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0  # not defined; a constant says nothing about the other
    return float(measure(first, second).statistic)
