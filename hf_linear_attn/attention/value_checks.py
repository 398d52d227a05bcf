"""Checks of values, in eager calls and in compiled graphs."""

import torch
from torch import Tensor


def any_wrong(wrong: Tensor, message: str) -> bool:
    """Whether a mistake was found, so that the caller can raise a ValueError that names it.

    A graph cannot look at values while it is made. It gets an assertion instead, a RuntimeError
    (on a GPU a device-side assert) when it runs, and the answer is False.

    Args:
        wrong: bool, any shape, True = a mistake.
        message: what the assertion says.
    """
    found = wrong.any()
    if torch.compiler.is_compiling():
        torch._assert_async(~found, message)  # pyright: ignore[reportPrivateImportUsage]
        return False
    return bool(found)
