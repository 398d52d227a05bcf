"""What a start says it does, against what the folder of its run held when it was started."""

import re

from tests.faults.soundness import Complete

_PASSED = re.compile(r"Passing over \S+/checkpoint-(\d+): its saving was interrupted")
_FROM = re.compile(r"Going on from \S+/checkpoint-(\d+)")
_ANEW = re.compile(r"Beginning anew in ")
_FINISHED = re.compile(r"holds this run, finished; nothing was changed")
_TOKENIZER = re.compile(r"Tokenizer: (?:that of \S+/checkpoint-(\d+)|(trained on) )")


def expected(before: Complete) -> dict[str, list[str]]:
    """What a start in such a folder is to say, by its kind."""
    if before.finished:
        return {"finished": ["yes"], "passed": [], "from": [], "anew": [], "tokenizer": []}
    newest = before.newest
    goes_on = [str(newest)] if newest else []
    return {
        "finished": [],
        "passed": [str(step) for step in before.torn if step > newest],
        "from": goes_on,
        "anew": ["yes"] if before.begun and not newest else [],
        "tokenizer": goes_on or ["trained on"],
    }


def said(output: str) -> dict[str, list[str]]:
    """What a start has said, by its kind."""
    return {
        "finished": ["yes"] * len(_FINISHED.findall(output)),
        "passed": _PASSED.findall(output),
        "from": _FROM.findall(output),
        "anew": ["yes"] * len(_ANEW.findall(output)),
        "tokenizer": ["".join(found) for found in _TOKENIZER.findall(output)],
    }


def contradictions(output: str, before: Complete, *, to_the_end: bool) -> list[str]:
    """Where a start says something else than what it is to do.

    Args:
        output: of the start.
        before: what the folder held when it was started.
        to_the_end: the start was not killed, so it has said everything.
    """
    wanted, found = expected(before), said(output)
    wrong = []
    for kind, words in found.items():
        complete = words == wanted[kind]
        # A killed start may not have come to it, but what it has said is true.
        if not (complete or (not to_the_end and words == wanted[kind][: len(words)])):
            wrong.append(f"{kind}: said {words}, expected {wanted[kind]}")
    return wrong
