"""Rotary frequencies of checkpoints whose context was extended after pretraining.

"linear" divides every frequency by a factor (Chen et al. 2023, "Extending Context Window of Large
Language Models via Positional Interpolation", 2306.15595). "llama3" divides those that turn less
than `low_freq_factor` times within the original context, leaves those that turn more than
`high_freq_factor` times, and goes linearly from one to the other between them (Llama 3.1).
"""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from hf_linear_attn.attention.suggestions import did_you_mean

_FIELDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
    ),
}  # fmt: skip


def check_rope(parameters: Mapping[str, Any]) -> None:
    """Refuse a type that is not known, and fields that do not belong to it.

    Args:
        parameters: a config's `rope_parameters`.

    Raises:
        ValueError: says what is accepted.
    """
    kind = parameters.get("rope_type", "default")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ValueError(
            f"rope_parameters has rope_type={kind!r}; accepted: {', '.join(map(repr, _FIELDS))}."
            f"{did_you_mean(str(kind), _FIELDS)}"
        )
    wanted = {"rope_theta", *_FIELDS[kind]}
    given = set(parameters) - {"rope_type"}
    numbers = all(
        isinstance(parameters[name], int | float) and 0 < parameters[name] < math.inf
        for name in given & wanted
    )
    # The base alone may be left out.
    if given - wanted or wanted - given - {"rope_theta"} or not numbers:
        fields = ", ".join(f"{name!r}: a number above 0" for name in sorted(wanted))
        raise ValueError(
            f"rope_parameters is {dict(parameters)}; accepted: {{'rope_type': {kind!r}, {fields}}}."
        )
    if kind == "llama3" and parameters["low_freq_factor"] >= parameters["high_freq_factor"]:
        raise ValueError(
            f"low_freq_factor ({parameters['low_freq_factor']}) must be below high_freq_factor "
            f"({parameters['high_freq_factor']}) in rope_parameters."
        )


def scale_frequencies(frequencies: Tensor, parameters: Mapping[str, Any]) -> Tensor:
    """Frequencies (head_dim / 2,) in radians a token, as `parameters` extend them.

    Args:
        frequencies: of plain RoPE.
        parameters: checked by `check_rope`.
    """
    kind = parameters.get("rope_type", "default")
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / parameters["factor"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    # Rounded where Transformers rounds: a last bit is multiplied by the position.
    turns = parameters["original_max_position_embeddings"] / (2 * math.pi / frequencies)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * frequencies / parameters["factor"] + kept * frequencies
