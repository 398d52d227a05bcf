"""What Transformers is going to take away: nothing of the project may lean on it.

Transformers says it in two ways: by `warnings.warn`, whose place is often that of another library,
and by its loggers. Both are kept here, if our code is who asked; what another library asks of
Transformers is for that library to mend.
"""

import contextlib
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
OURS = tuple(f"{ROOT / name}/" for name in ("hf_linear_attn", "recipes", "scripts", "tests"))
# Who hands a call on, and asks for nothing: Transformers itself, and what stands between.
PACKAGE = re.compile(r"(site|dist)-packages/")
PASSING = re.compile(rf"{PACKAGE.pattern}(transformers|torch)/")
KINDS = (FutureWarning, DeprecationWarning, PendingDeprecationWarning)
WORDS = re.compile(
    r"deprecat|(will|to) be removed|removed in (a future|v?\d|version)|no longer supported",
    re.IGNORECASE,
)
# As a program writes them that was started anew.
WRITTEN = re.compile(rf"^.*transformers.*(?:{WORDS.pattern}).*$", re.IGNORECASE | re.MULTILINE)

found: list[str] = []


def written(text: str) -> list[str]:
    """The lines with deprecations in what a program wrote."""
    return [match.group() for match in WRITTEN.finditer(text)]


def watch() -> None:
    """Keep every deprecation of Transformers of this process in `found`, from now on."""
    for kind in KINDS:
        warnings.filterwarnings("default", category=kind, module="transformers")
    watch_warnings()
    watch_loggers()


def watch_loggers() -> None:
    """The half that lasts."""
    logging.getLogger("transformers").addHandler(_Keeper(logging.WARNING))


def watch_warnings() -> None:
    """The half that ends with the `warnings.catch_warnings` in which it began."""
    original = warnings.showwarning
    if getattr(original, "watches", False):
        return  # pytest records nothing, so nothing has ended since the last test

    def show(message, category, filename, lineno, file=None, line=None):
        frame = _outside_of_warnings(sys._getframe(1))
        if issubclass(category, KINDS) and _is_transformers(frame) and _is_asked_by_us(frame):
            found.append(f"{category.__name__}: {message}\n{_where(frame)}")
        original(message, category, filename, lineno, file, line)

    show.watches = True
    warnings.showwarning = show


@contextlib.contextmanager
def asked_for_by_name(names: Iterable[str]) -> Iterator[None]:
    """Leave out what says that one of these names is deprecated: a user gave it, and reads so."""
    before = len(found)
    quoted = [f"`{name}`" for name in names]
    try:
        yield
    finally:
        found[before:] = [each for each in found[before:] if not any(q in each for q in quoted)]


def fail() -> None:
    """Raise AssertionError if anything was found since the last call."""
    taken, found[:] = found[:], []
    assert not taken, "deprecated by Transformers:\n" + "\n".join(taken)


class _Keeper(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        frame = sys._getframe(1)
        if WORDS.search(text) and _is_asked_by_us(frame):
            found.append(f"{record.name}: {text}\n{_where(frame)}")


def _outside_of_warnings(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_globals.get("__name__") == "warnings":
        frame = frame.f_back
    return frame


def _is_transformers(frame: FrameType | None) -> bool:
    name = "" if frame is None else frame.f_globals.get("__name__", "")
    return name == "transformers" or name.startswith("transformers.")


def _is_asked_by_us(frame: FrameType | None) -> bool:
    """Is the nearest code that is neither Transformers nor PyTorch that of this project?"""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OURS) and file != __file__:
            return True
        if PACKAGE.search(file) and not PASSING.search(file):
            return False
        frame = frame.f_back
    return True


def _where(frame: FrameType | None) -> str:
    return "".join(traceback.format_stack(frame, limit=16))
