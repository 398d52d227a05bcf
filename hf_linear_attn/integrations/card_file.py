"""The card in a run's folder: a longer run writes it again, and what a person wrote is kept."""

import hashlib
import os
import re
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard
from transformers.utils import logging

logger = logging.get_logger(__name__)

_MARK = re.compile(r"\n*<!-- written by a run of hf_linear_attn: (\w+) -->\n\Z")
# An older run's must not stand in for those of this one.
_MEASURED = ("metrics", "model-index")


def write_card(file: Path, card: str) -> Path:
    """Write a run's card.

    A card there that is not, to the byte, what a run has written is moved aside, and a warning says
    where to. What its header says and the new one does not, such as a licence, stands in the new
    one, too, but for results.

    Args:
        file: the card, in an existing folder.
        card: the new text.

    Returns:
        `file`.
    """
    old = _text(file)
    text = marked(card if old is None else _with_words_of(old, card))
    # Cut off while it is written, the card of before would be lost.
    temporary = file.with_name(f".{file.name}.{os.getpid()}.hf_linear_attn")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        if os.path.lexists(file) and not (old is not None and is_as_written(old)):
            _move_aside(file)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return file


def marked(card: str) -> str:
    """A card with a comment at its end by which `is_as_written` knows it again."""
    text = unmarked(card).rstrip("\n")
    return f"{text}\n\n<!-- written by a run of hf_linear_attn: {_digest(text)} -->\n"


def unmarked(card: str) -> str:
    """A card without that comment."""
    return _MARK.sub("\n", card)


def is_as_written(card: str) -> bool:
    """Is this, to the byte, what `marked` has given?"""
    found = _MARK.search(card)
    return found is not None and marked(card) == card and found[1] == _digest(card[: found.start()])


def _text(file: Path) -> str | None:
    """None where there is no card, or none that can be read."""
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _with_words_of(old: str, text: str) -> str:
    """The new card with what stands in the header of an old one beyond what a run writes."""
    card: Any = ModelCard(text)
    try:
        theirs = ModelCard(old).data.to_dict()
    except (ValueError, TypeError, RecursionError, yaml.YAMLError):  # no header, or a broken one
        return text
    ours = card.data.to_dict()
    for name, value in theirs.items():
        if name not in ours and name not in _MEASURED:
            # To YAML 1.1 Norwegian is false.
            card.data[name] = "no" if name == "language" and value is False else value
    tags = [tag for tag in theirs.get("tags") or () if isinstance(tag, str)]
    if tags:
        card.data.tags = list(dict.fromkeys([*(card.data.tags or ()), *tags]))
    return str(card)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _move_aside(file: Path) -> None:
    names = (file.with_name(f"{file.stem}.edited-{n}{file.suffix}") for n in count(1))
    free = next(path for path in names if not os.path.lexists(path))
    file.rename(free)
    logger.warning("%s is not what a run has written there: it is kept as %s", file, free.name)
