"""One figure from several seeds."""

import math

import pytest

from hf_linear_attn.training.spread import spread


def test_mean_and_sample_deviation():
    both = spread([0.9, 0.8, 0.7])
    assert (both.mean, both.deviation, both.count) == pytest.approx((0.8, 0.1, 3))
    assert both.show("{:.1f}", 100) == "80.0 ± 10.0"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_run_that_has_diverged_is_shown_as_what_it_is(bad):
    for values in ([bad], [bad, bad], [0.5, bad], [bad, 0.5, 0.25]):
        assert spread(values).show("{:.2f}", 100) == f"{bad:.2f}"
        assert spread(values).deviation is None
    assert spread([math.inf, -math.inf]).show() == "nan"


def test_one_value_has_no_deviation():
    assert spread([0.25]).show() == "0.25"
    with pytest.raises(ValueError, match="no value"):
        spread([])
