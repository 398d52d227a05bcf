"""Exact means over masked tokens, and the unigram model beside them."""

import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import EvalPrediction

from hf_linear_attn.training.metrics import (
    LanguageModelMetrics,
    perplexity,
    row_statistics,
    token_counts,
    unigram_baseline,
)


def test_token_counts_read_every_row_of_a_ragged_and_filtered_data_set():
    data = Dataset.from_dict({"input_ids": [[0, 3, 3], [4], [], [3, 2]], "other": [1, 2, 3, 4]})
    assert token_counts(data, 6).tolist() == [1, 0, 1, 3, 1, 0]
    assert token_counts(data.select([3, 1]), 6).tolist() == [0, 0, 1, 1, 1, 0]
    assert token_counts(data.to_iterable_dataset(), 6).tolist() == [1, 0, 1, 3, 1, 0]


def test_a_token_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="token id 7 lies outside the vocabulary of 5"):
        token_counts(Dataset.from_dict({"input_ids": [[7]]}), 5)


def test_the_unigram_is_smoothed_by_one_and_leaves_special_tokens_out():
    # Tokens 2, 3, 4 with counts 5, 0, 2; 0 and 1 are special, however frequent.
    counts = np.array([100, 50, 5, 0, 2])
    evaluation = Dataset.from_dict({"labels": [[-100, 2, 2, -100], [3, 4]]})
    unigram = unigram_baseline(counts, [0, 1, 1], evaluation)
    total = 6 + 1 + 3
    expected = -(2 * math.log(6 / total) + math.log(1 / total) + math.log(3 / total)) / 4
    assert unigram.loss == pytest.approx(expected, rel=1e-12)
    assert unigram.accuracy == 0.5
    assert unigram.tokens == 4


def test_a_unigram_without_masked_tokens_is_refused():
    with pytest.raises(ValueError, match="no token to predict"):
        unigram_baseline(np.ones(5), [0], Dataset.from_dict({"labels": [[-100, -100]]}))


def test_row_statistics_are_sums_of_each_row():
    labels = torch.tensor([[-100, 2, 0], [-100, -100, -100], [1, -100, -100]])
    logits = torch.randn(3, 4)
    nll = torch.nn.functional.cross_entropy(logits, torch.tensor([2, 0, 1]), reduction="none")
    right = (logits.argmax(-1) == torch.tensor([2, 0, 1])).float()
    expected = torch.tensor(
        [
            [nll[0] + nll[1], right[0] + right[1], 2],
            [0, 0, 0],
            [nll[2], right[2], 1],
        ]
    )
    torch.testing.assert_close(row_statistics(logits, labels), expected)


def test_the_loss_is_a_mean_over_tokens_not_over_rows_or_batches():
    # Two tokens of loss 1, six of loss 3: 2.5, where a mean of means gives 2.0.
    first, second = np.array([[2.0, 2.0, 2.0]]), np.array([[18.0, 0.0, 6.0]])
    metrics = LanguageModelMetrics(3.25, "masked_accuracy")
    for predictions in (np.concatenate([first, second]), [first, second]):
        labels = np.zeros(2)
        found = metrics(EvalPrediction(predictions=predictions, label_ids=labels))
        assert found == {
            "loss": 2.5,
            "perplexity": pytest.approx(math.exp(2.5)),
            "masked_accuracy": 0.25,
            "unigram_loss": 3.25,
            "unigram_perplexity": math.exp(3.25),
        }


def test_an_evaluation_without_masked_tokens_is_refused():
    with pytest.raises(ValueError, match="no token to predict"):
        LanguageModelMetrics()(EvalPrediction(predictions=np.zeros((2, 3)), label_ids=np.zeros(2)))


def test_perplexity_of_a_diverged_model_is_infinite():
    assert perplexity(1000.0) == math.inf
    assert perplexity(0.0) == 1.0
