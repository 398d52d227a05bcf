"""The card in a run's folder: a longer run writes it again, and what a person wrote is kept."""

import hashlib
import os
import re
from itertools import count
from pathlib import Path

import yaml
from huggingface_hub import ModelCard
from transformers.utils import logging

from hf_linear_attn.integrations.card_drafts import FROM_RUN, is_signed, signed

logger = logging.get_logger(__name__)

_MEASURED = ("metrics", "model-index")
_HEADER_MARK = re.compile(r"<!-- header: (\w+) -->")


def write_card(file: Path, card: str) -> Path:
    """Write a run's card.

    Of a card that a run has written there, what a person has put into its header since, such as a
    licence, stands in the new one, too. One that a person has written or changed below the header
    is moved aside, and a warning says where to.

    Args:
        file: the card, in an existing folder.
        card: the new text.

    Returns:
        `file`.
    """
    text = signed(f"{card.rstrip()}\n\n<!-- header: {_header_digest(card)} -->\n", FROM_RUN)
    with_header = _with_header_of(file, text)
    # Cut off while it is written, the card of before would be lost.
    temporary = file.with_name(f".{file.name}.{os.getpid()}.hf_linear_attn")
    try:
        temporary.write_text(with_header or text, encoding="utf-8")
        if with_header is None and os.path.lexists(file):
            _move_aside(file)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return file


def _with_header_of(file: Path, text: str) -> str | None:
    """The new card with what a person put into an old one's header; None if that is no run's."""
    try:
        old = file.read_text(encoding="utf-8")
        if not is_signed(old, FROM_RUN):
            return None
        mark = _HEADER_MARK.search(old)
        if mark and mark[1] == _header_digest(old):
            return text
        card = ModelCard(text)
        for name, value in ModelCard(old).data.to_dict().items():
            if name not in _MEASURED:
                card.data[name] = value
    except (OSError, ValueError, yaml.YAMLError):  # not a text, or a header that cannot be read
        return None
    return str(card)


def _header_digest(card: str) -> str:
    header = ModelCard(card).data.to_dict()
    return hashlib.sha256(repr(sorted(header.items())).encode()).hexdigest()[:16]


def _move_aside(file: Path) -> None:
    names = (file.with_name(f"{file.stem}.edited-{n}{file.suffix}") for n in count(1))
    free = next(path for path in names if not os.path.lexists(path))
    file.rename(free)
    logger.warning("%s is not what a run has written there: it is kept as %s", file, free.name)
