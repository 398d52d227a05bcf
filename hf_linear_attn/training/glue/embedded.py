"""A task that every machine has: is a paragraph from the language reference or from a docstring?

Paragraphs of the embedded corpus. Reference topics are about the language, docstrings about the
modules of the standard library.
"""

import re
from collections.abc import Iterator
from typing import Any

from hf_linear_attn.training.corpus import embedded_documents

_SHORTEST, _LONGEST = 60, 400  # characters


def embedded_rows() -> Iterator[dict[str, Any]]:
    """Yield text, label ("reference" or "library") and index; no text occurs twice.

    What stands in both parts is left out.
    """
    from pydoc_data.topics import topics

    reference = {text.strip() for text in topics.values()}
    paragraphs: dict[str, set[str]] = {}
    for document in embedded_documents():
        label = "reference" if document in reference else "library"
        for paragraph in re.split(r"\n\s*\n", document):
            text = " ".join(paragraph.split())
            if _SHORTEST <= len(text) <= _LONGEST:
                paragraphs.setdefault(text, set()).add(label)
    kept = [(text, *labels) for text, labels in paragraphs.items() if len(labels) == 1]
    for index, (text, label) in enumerate(kept):
        yield {"text": text, "label": label, "index": index}
