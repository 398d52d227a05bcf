"""The embedded corpus: Python's reference topics and the standard library's docstrings.

About 2 MB of English that every machine with a Python has. Nothing is imported, downloaded or
written: docstrings are read by parsing the source files.
"""

import ast
import logging
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tqdm.auto import tqdm

logger = logging.getLogger(__name__)

_SKIPPED_FOLDERS = {"test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def embedded_documents(library: Path | None = None) -> list[str]:
    """The documents of the embedded corpus, always the same and in the same order on one Python.

    Args:
        library: folder with the standard library's sources; None means that of this Python.

    Returns:
        One document a reference topic (sorted by name), then one a module: its docstrings joined
        by blank lines, in the order of the source. No docstring occurs twice.

    Raises:
        ValueError: the folder holds no docstring, as where Python was installed without sources.
    """
    from pydoc_data.topics import topics

    library = library or Path(sysconfig.get_path("stdlib"))
    documents = [topics[name].strip() for name in sorted(topics)]
    seen: set[str] = set()
    found = 0
    # On a terminal, a bar appears after two seconds; a fast machine shows none.
    bar = tqdm(_sources(library), "Reading docstrings", delay=2, leave=False, disable=None)
    for source in bar:
        docstrings = [text for text in _docstrings(source) if not (text in seen or seen.add(text))]
        found += len(docstrings)
        if docstrings:
            documents.append("\n\n".join(docstrings))
    if not found:
        raise ValueError(
            f"no docstring found under {str(library)!r}: this Python comes without its library's "
            "sources; give --train_file or --dataset_name"
        )
    return list(dict.fromkeys(filter(None, documents)))


def _sources(library: Path) -> list[Path]:
    """The library's own source files, sorted by their path below it."""
    inside = [path.relative_to(library) for path in library.rglob("*.py")]
    return [
        library / path
        for path in sorted(inside, key=lambda path: path.as_posix())
        if not _SKIPPED_FOLDERS.intersection(path.parts)
    ]


def _docstrings(source: Path) -> Iterator[str]:
    """The docstrings of one file, outer ones first; none where the file is no valid Python."""
    try:
        with tokenize.open(source) as file:
            tree = ast.parse(file.read())
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        logger.warning("%s is left out of the embedded corpus: %s", source, error)
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node)
            if text and text.strip():
                yield text.strip()
