"""Cards that nobody has written yet: they give way to newer ones, and what people wrote stays."""

import hashlib
import re
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

_HEADER = re.compile(r"\s*---\r?\n.*?\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_SIGNATURE = re.compile(
    r"\n<!-- hf_linear_attn wrote this card and replaces it until it is edited: (\w+) -->\s*"
)
# What Transformers fills into the template of `huggingface_hub` where a repository has no card.
_DRAFT = (
    "This is the model card of a 🤗 transformers model that has been pushed on the Hub. This model "
    "card has been automatically generated."
)


def signed(card: str) -> str:
    """A card with a comment by which `is_unedited` knows it again.

    Args:
        card: text of a card; an older comment in it is replaced.
    """
    text = _SIGNATURE.sub("\n", card).rstrip()
    comment = "hf_linear_attn wrote this card and replaces it until it is edited"
    return f"{text}\n\n<!-- {comment}: {_digest(text)} -->\n"


def is_signed(card: str) -> bool:
    """Did this package write the card, and nobody change more than its header?"""
    found = _SIGNATURE.search(card)
    return found is not None and found[1] == _digest(_SIGNATURE.sub("\n", card))


def is_unedited(card: str) -> bool:
    """Has nobody written into the card's body: is it signed, or Transformers' empty form?"""
    return is_signed(card) or _is_draft(card)


def merged(card: str, old: str) -> str:
    """A card with the header of the one that it replaces.

    Args:
        card: the new one; where both headers say something it holds, tags are those of both.
        old: an unedited one.
    """
    ours, theirs = ModelCard(card).data.to_dict(), ModelCard(old).data.to_dict()
    if is_signed(old):
        theirs.pop("pipeline_tag", None)  # of the head that the old one was about
    both: dict[str, Any] = {**theirs, **ours}
    tags = [*(ours.get("tags") or []), *(theirs.get("tags") or [])]
    both["tags"] = list(dict.fromkeys(tags))
    return f"---\n{ModelCardData(**both).to_yaml()}\n---\n{_body(card)}"


def _is_draft(card: str) -> bool:
    if _DRAFT not in card:
        return False
    form = str(ModelCard.from_template(ModelCardData(), model_description=_DRAFT))
    return _plain(_body(card)) == _plain(_body(form))


def _body(card: str) -> str:
    header = _HEADER.match(card)
    return card if header is None else card[header.end() :]


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _digest(card: str) -> str:
    return hashlib.sha256(_plain(_body(card)).encode()).hexdigest()[:16]
