"""ListOps expressions drawn at random, as Long Range Arena draws them.

A tree of depth d draws a number below 1 unless d is the greatest depth: above `operator_share`, and
at the greatest depth, it is a digit; else an operator over 2 to `max_args` trees of depth d + 1.
A digit has length 1, an operator 2 (itself and its closing bracket) plus that of its arguments.
Trees with min_length < length < max_length are kept, each at most once.

Source: lra_benchmarks/data/listops.py of google-research/long-range-arena (Nangia and Bowman 2018,
https://arxiv.org/abs/1804.06028).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_OPERATORS = ("MIN", "MAX", "MED", "SM")
_DIGITS = 10
# Below this share of trees kept, a sample takes a second or more: nobody means that.
_SMALLEST_SHARE = 1e-5
_PLENTY = 1e30
_RANGES = {
    "min_length": (0, 20_000),
    "max_length": (2, 20_000),
    "max_depth": (1, 100),
    "max_args": (2, 100),
}


@dataclass(frozen=True)
class ListOpsParameters:
    """What is drawn; the defaults are those of Long Range Arena.

    Args:
        min_length: kept are lengths above this, in symbols.
        max_length: and below this.
        max_depth: greatest depth of a tree; a lone digit has depth 1.
        max_args: greatest number of arguments.
        operator_share: probability of an operator where one is allowed.

    Raises:
        ValueError: a value out of range.
    """

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_args: int = 10
    operator_share: float = 0.25

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            got = getattr(self, name)
            if not least <= got <= most:
                raise ValueError(f"listops_{name}: got {got}, expected {least} to {most}")
        if not 0 < self.operator_share < 1:
            raise ValueError(
                f"listops_operator_share: got {self.operator_share}, expected above 0 and below 1"
            )


@dataclass(frozen=True)
class Expression:
    """A tree, written out.

    Attributes:
        source: symbols and parentheses, split by blanks.
        length: in symbols.
        value: 0 to 9.
    """

    source: str
    length: int
    value: int


def check_possible(parameters: ListOpsParameters, count: int) -> float:
    """The exact share of trees that are kept; nothing is drawn.

    Args:
        parameters: what is to be drawn.
        count: how many different expressions are needed.

    Raises:
        ValueError: no tree, or hardly any, has such a length, or there are too few different ones.
    """
    shares, numbers = _lengths(parameters)
    kept = slice(parameters.min_length + 1, parameters.max_length)
    share, different = float(shares[kept].sum()), float(numbers[kept].sum())
    what = (
        f"ListOps lengths above {parameters.min_length} and below {parameters.max_length} with "
        f"depth up to {parameters.max_depth} and 2 to {parameters.max_args} arguments"
    )
    advice = "change listops_min_length, listops_max_length, listops_max_depth or listops_max_args"
    if share < _SMALLEST_SHARE:
        found = f"only {share:.1g} of all trees are" if share else "no tree is"
        raise ValueError(f"{what}: {found} of such a length; {advice}")
    # To draw the last of few different ones takes ever longer.
    if different < 2 * count:
        raise ValueError(
            f"{what}: there are {different:,.0f} different expressions, too few to draw {count:,} "
            f"different ones; {advice}"
        )
    return share


def draw(parameters: ListOpsParameters, random_state: random.Random) -> Iterator[Expression]:
    """Expressions of a kept length without end; the same one may come twice.

    Args:
        parameters: checked by `check_possible`.
        random_state: drawn from.
    """
    while True:
        drawn = _tree(parameters, random_state, depth=1, room=parameters.max_length - 1)
        if drawn is not None and drawn.length > parameters.min_length:
            yield drawn


def _tree(
    parameters: ListOpsParameters, random_state: random.Random, depth: int, room: int
) -> Expression | None:
    """A tree, or None as soon as it is longer than `room`: it would not be kept."""
    last = depth == parameters.max_depth
    if last or random_state.random() > parameters.operator_share:
        digit = random_state.randrange(_DIGITS)
        return Expression(str(digit), 1, digit) if room >= 1 else None
    count = random_state.randint(2, parameters.max_args)
    length, arguments = 2, []
    for _ in range(count):
        argument = _tree(parameters, random_state, depth + 1, room - length)
        if argument is None:
            return None
        arguments.append(argument)
        length += argument.length
    if length > room:
        return None
    operator = random_state.choice(_OPERATORS)
    inner = " ".join(f"{argument.source} )" for argument in arguments)
    source = f"{'( ' * (count + 1)}[{operator} {inner} ] )"
    return Expression(source, length, _apply(operator, [a.value for a in arguments]))


def _apply(operator: str, values: list[int]) -> int:
    if operator == "MIN":
        return min(values)
    if operator == "MAX":
        return max(values)
    if operator == "SM":
        return sum(values) % 10
    ordered, middle = sorted(values), len(values) // 2
    # The mean of the two in the middle, cut to a whole number.
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def _lengths(parameters: ListOpsParameters) -> tuple[np.ndarray, np.ndarray]:
    """Probability, and number of different trees, by length up to max_length − 1.

    The arguments' lengths add up, so that their distributions are convolved.
    """
    size = parameters.max_length
    share, number = np.zeros(size), np.zeros(size)
    share[1], number[1] = 1.0, float(_DIGITS)
    digit, digits = share.copy(), number.copy()
    for _ in range(parameters.max_depth - 1):
        share_sum, number_sum = np.zeros(size), np.zeros(size)
        shares, numbers = share, number
        for _ in range(2, parameters.max_args + 1):
            shares = np.convolve(shares, share)[:size]
            # Only "plenty" matters: no overflow.
            numbers = np.minimum(np.convolve(numbers, number)[:size], _PLENTY)
            share_sum[2:] += shares[:-2]
            number_sum[2:] += numbers[:-2]
        operator = parameters.operator_share
        share = (1 - operator) * digit + operator * share_sum / (parameters.max_args - 1)
        number = np.minimum(digits + len(_OPERATORS) * number_sum, _PLENTY)
    return share, number
