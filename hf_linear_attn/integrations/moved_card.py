"""The card that came with a model, for the place that the model goes to."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from hf_linear_attn.integrations.card_drafts import is_signed, signed
from hf_linear_attn.integrations.card_file import is_as_written, marked, unmarked
from hf_linear_attn.integrations.config_card import auto_class_of, code_note, place
from hf_linear_attn.integrations.saved_model import SavedModel

_LOADED = re.compile(
    r"(?P<call>from_pretrained\(|\bmodel=)"
    r"(?P<path>\"(?:[^\"\\\n]|\\.)*\")"
    r"(?:, revision=\"(?:[^\"\\\n]|\\.)*\")?"
)


def moved_card(
    saved: SavedModel,
    source: str,
    where: str,
    *,
    with_code: bool,
    revision: str | None = None,
    shared_as: Iterable[str] = (),
) -> str | None:
    """The card that came with a model, for the place that the model goes to.

    Its code loads the model from where it was: by the folder's path, or the end of it, as far as
    whoever wrote the card knew it; or by a name on the Hub.

    Args:
        saved: the model.
        source: where it was.
        where: where it will be.
        with_code: whether its code goes along; then the card says how to load it by that.
        revision: branch of `where`; None = the default one.
        shared_as: further names that the model has had on the Hub.
    """
    if saved.card is None:
        return None
    old, there = {source, *shared_as}, place(where, revision)

    def moved(found: re.Match[str]) -> str:
        named = json.loads(found["path"])
        is_it = named in old or _is_end_of(named, source)
        return f"{found['call']}{there}" if is_it else found[0]

    text = _LOADED.sub(moved, unmarked(saved.card))
    if with_code and "trust_remote_code" not in text:
        note = code_note(
            where, auto_class_of(saved.model), has_tokenizer=saved.tokenizer is not None,
            revision=revision,
        )  # fmt: skip
        text = f"{text.rstrip()}\n\n## Without hf_linear_attn\n\n{note}\n"
    if is_as_written(saved.card):
        return marked(text)
    return signed(text) if is_signed(saved.card) else text


def _is_end_of(named: str, source: str) -> bool:
    """Is this the folder's path, from whichever folder it was seen?"""
    if not Path(source).is_dir():
        return False
    parts = [part for part in Path(named).parts if part != ".."]
    folders = (Path(source).absolute(), Path(source).resolve())
    return bool(parts) and any(list(f.parts[-len(parts) :]) == parts for f in folders)
