"""Positions and documents, drawn as pictures."""

import pytest
import torch

from hf_linear_attn.attention.documents import (
    check_documents,
    document_lengths,
    fill_pads,
    token_positions,
)


def row(text):
    return torch.tensor([[int(c) for c in text]])


@pytest.mark.parametrize(
    ("mask", "segments", "positions"),
    [
        ("111111", None, "012345"),
        ("000111", None, "000012"),
        ("110110", None, "011233"),
        (None, "000111", "012012"),
        (None, "440111", "010012"),
        ("001111", "990077", "000101"),
        ("111100", "001100", "010122"),
        ("110011", "220033", "012201"),
    ],
)
def test_positions_count_real_tokens_of_each_document(mask, segments, positions):
    mask = None if mask is None else row(mask).bool()
    segments = None if segments is None else row(segments)
    found = token_positions(mask, segments)
    real = slice(None) if mask is None else mask[0]
    assert found[0][real].tolist() == row(positions)[0][real].tolist()


@pytest.mark.parametrize(
    ("mask", "segments", "lengths"),
    [
        ("000111", None, "333333"),
        (None, "001112", "223331"),
        ("011110", "001110", "113333"),
    ],
)
def test_lengths_of_documents(mask, segments, lengths):
    mask = None if mask is None else row(mask).bool()
    segments = None if segments is None else row(segments)
    found = document_lengths(mask, segments)
    real = slice(None) if mask is None else mask[0]
    assert found[0][real].tolist() == row(lengths)[0][real].tolist()


def test_pads_take_the_document_beside_them():
    filled = fill_pads(row("905506"), row("001101").bool())
    assert filled.tolist() == row("555556").tolist()


def test_pads_do_not_break_a_document():
    check_documents(row("101101"), row("101101").bool())
    with pytest.raises(ValueError, match="row 0 are not contiguous"):
        check_documents(row("101101"), None)
