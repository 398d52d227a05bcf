"""The fixed symbol tables: which number stands for what, today and in ten years.

A table that is collected from the data gives other numbers in every process, and a checkpoint
tested in a new one then scores chance (long-range-arena, issues 15 and 60).
"""

from dataclasses import dataclass

import numpy as np

LISTOPS_SYMBOLS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
"""In the order of their ids, which begin at 1."""


@dataclass(frozen=True)
class SymbolTable:
    """A fixed table of symbols.

    Attributes:
        name: of what the symbols are.
        size: number of ids, pad included.
        pad: id of padding; None where all examples are of one length and every id is a symbol.
    """

    name: str
    size: int
    pad: int | None


BYTES = SymbolTable("bytes", size=257, pad=0)
"""Byte b has id b + 1."""
LISTOPS = SymbolTable("ListOps symbols", size=len(LISTOPS_SYMBOLS) + 1, pad=0)
PIXELS = SymbolTable("grey levels", size=256, pad=None)
"""A pixel's id is its value: black is a symbol, not padding."""

_LISTOPS_IDS = {symbol: number for number, symbol in enumerate(LISTOPS_SYMBOLS, start=1)}


def byte_ids(text: bytes) -> np.ndarray:
    """Ids of a text's bytes, uint16 (len(text),)."""
    return np.frombuffer(text, dtype=np.uint8).astype(np.uint16) + 1


def listops_tokens(source: str) -> list[str]:
    """Operators with their bracket, digits and closing brackets; `(` and `)` only group them."""
    return [word for word in source.split() if word not in ("(", ")")]


def listops_ids(source: str) -> np.ndarray:
    """Ids of an expression's symbols, uint16 (symbols,).

    Raises:
        ValueError: a word that is no symbol, or no word at all.
    """
    tokens = listops_tokens(source)
    unknown = next((token for token in tokens if token not in _LISTOPS_IDS), None)
    if unknown is not None or not tokens:
        raise ValueError(
            f"no ListOps expression: got {unknown or 'nothing'!r}, expected the symbols "
            f"{' '.join(LISTOPS_SYMBOLS)} (and parentheses), split by blanks"
        )
    return np.array([_LISTOPS_IDS[token] for token in tokens], dtype=np.uint16)
