"""A task that every machine has: is a paragraph from the language reference or from a docstring?

Paragraphs of the embedded corpus. Reference topics are about the language, docstrings about the
modules of the standard library.
"""

import random
import re
from collections.abc import Iterator
from typing import Any

from hf_linear_attn.training.corpus import embedded_documents

_CLASSES = ("library", "reference")
_SHORTEST, _LONGEST = 60, 400  # characters


def embedded_rows() -> Iterator[dict[str, Any]]:
    """Yield text, label ("reference" or "library") and index; no text occurs twice.

    What stands in both parts is left out; of each class as many are drawn as the smaller one has.
    """
    from pydoc_data.topics import topics

    reference = {text.strip() for text in topics.values()}
    labels: dict[str, set[str]] = {}
    for document in embedded_documents():
        label = "reference" if document in reference else "library"
        for paragraph in re.split(r"\n\s*\n", document):
            text = " ".join(paragraph.split())
            if _SHORTEST <= len(text) <= _LONGEST:
                labels.setdefault(text, set()).add(label)
    of_class = {name: [t for t, found in labels.items() if found == {name}] for name in _CLASSES}
    count = min(map(len, of_class.values()))
    draw = random.Random(0)
    rows = [(text, name) for name in _CLASSES for text in draw.sample(of_class[name], count)]
    for index, (text, name) in enumerate(rows):
        yield {"text": text, "label": name, "index": index}
