"""How a mask travels from Transformers' mask function to the attention function.

Transformers makes the mask once a forward pass, and only then says whether it is to be causal; the
attention module says so again, by `is_causal`, and in some models says something else. Softmax
attention reads the pairs of the mask. Ours are not made of pairs, so they carry the word itself.

It must be known to a graph while it is made, survive being moved, expanded and kept for later, and
be handed on as it is by a model that gives its mask to a model inside (four dimensions are). So it
is a length: int32 (batch, form, 1, keys), the form from 2 on. A mask of a user has bool or float
entries, and one in the place of the form. Without a pad and with one document a row, keys is 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class MaskForm(NamedTuple):
    """What the entries of a mask mean."""

    causal: bool
    """a token sees only those before it"""
    documents: bool = False
    """entries are numbers of documents from 1 (0 = pad); else 1 = real token, 0 = pad"""
    other: bool = False
    """a pattern that no linear attention can follow; there are no entries"""


_FORMS = (
    MaskForm(True),
    MaskForm(True, documents=True),
    MaskForm(False),
    MaskForm(False, documents=True),
    MaskForm(False, other=True),
)
_FIRST = 2


def wrapped(rows: Tensor | None, form: MaskForm, batch: int, device: torch.device | str) -> Tensor:
    """The mask that travels.

    Args:
        rows: bool or int (batch, keys), or None = all tokens are real and of one document.
        form: what the rows mean.
        batch: number of rows.
        device: of the result.
    """
    if rows is None:
        rows = torch.zeros((batch, 0), dtype=torch.int32, device=device)
    return rows.to(torch.int32)[:, None, None].expand(-1, _FIRST + _FORMS.index(form), -1, -1)


def unwrapped(mask: Tensor) -> tuple[Tensor | None, MaskForm] | None:
    """The rows and their form, or None for a mask that `wrapped` did not make."""
    if mask.ndim != 4 or mask.dtype != torch.int32 or mask.shape[2] != 1:
        return None
    number = mask.shape[1] - _FIRST
    if not 0 <= number < len(_FORMS):
        return None
    form, rows = _FORMS[number], mask[:, 0, 0]
    if rows.shape[1] == 0:
        return None, form
    return (rows if form.documents else rows > 0), form
