"""Choices as even as dice: Hypothesis takes the first of a few options far more often."""

from hypothesis import strategies as st


def evenly(options):
    """One of the options; the first is the simplest."""
    options = list(options)
    return st.integers(0, 2**16).map(lambda number: options[number % len(options)])
