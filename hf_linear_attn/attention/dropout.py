"""Dropout on attention weights."""


def check_dropout(probability: float) -> None:
    """Refuse a dropout that is no probability.

    Raises:
        ValueError: not in [0, 1).
    """
    if not 0 <= probability < 1:
        raise ValueError(f"attention_probs_dropout_prob is {probability}; it must lie in [0, 1).")
