"""One figure from several seeds."""

import pytest

from hf_linear_attn.training.spread import spread


def test_mean_and_sample_deviation():
    both = spread([0.9, 0.8, 0.7])
    assert (both.mean, both.deviation, both.count) == pytest.approx((0.8, 0.1, 3))
    assert both.show("{:.1f}", 100) == "80.0 ± 10.0"


def test_one_value_has_no_deviation():
    assert spread([0.25]).show() == "0.25"
    with pytest.raises(ValueError, match="no value"):
        spread([])
