"""The value of a ListOps expression, found from its text: a second opinion on every label."""

import numpy as np

from hf_linear_attn.training.lra.symbols import listops_tokens

_FUNCTIONS = {
    "[MIN": np.min,
    "[MAX": np.max,
    "[MED": np.median,
    "[SM": lambda values: np.sum(values) % 10,
}


def evaluate(source: str) -> int:
    """The value of an expression, 0 to 9; the median of an even number of values is cut.

    Args:
        source: symbols split by blanks; parentheses are passed over.

    Raises:
        ValueError: not one complete expression.
    """
    open_operators: list[str] = []
    values: list[list[int]] = [[]]
    for token in listops_tokens(source):
        if token in _FUNCTIONS:
            open_operators.append(token)
            values.append([])
        elif token == "]":
            if not open_operators or not values[-1]:
                raise ValueError("no ListOps expression: a ] closes nothing, or an empty list")
            arguments = values.pop()
            values[-1].append(int(_FUNCTIONS[open_operators.pop()](arguments)))
        elif len(token) == 1 and token.isdecimal():
            values[-1].append(int(token))
        else:
            raise ValueError(f"no ListOps expression: unknown symbol {token!r}")
    if open_operators or len(values[0]) != 1:
        raise ValueError("no ListOps expression: it must be one digit or one closed list")
    return values[0][0]
