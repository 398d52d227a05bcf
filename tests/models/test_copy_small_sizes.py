"""The copy test at sizes at which blocks and landmarks are fewer than the tokens of a row.

At their default sizes a row of 64 tokens is one block, and has no more tokens than landmarks.
"""

import pytest

from tests.conftest import VARIANTS
from tests.models import test_copy_task as copy_task

SIZES = {"transnormer": {"block_size": 4}, "nystrom": {"num_landmarks": 32}}


@pytest.mark.slow
@pytest.mark.parametrize("variant", list(SIZES))
def test_small_blocks_and_few_landmarks_learn_to_copy(variant, monkeypatch):
    config_class, *others = VARIANTS[variant]

    def small(**fields):
        return config_class(**fields, **SIZES[variant])

    monkeypatch.setitem(VARIANTS, variant, (small, *others))
    # Half the steps of the copy test: both copy 99 % of the tokens after them.
    assert copy_task.train(copy_task.build(variant), steps=100) >= 0.95
