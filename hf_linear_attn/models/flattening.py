"""Modules of this package as files of one folder, which import each other from beside themselves.

Code that travels with a model lies in a single folder: Transformers follows `from .x import y`
there, and nothing else. `hf_linear_attn/ops/scan.py` becomes `ops_scan.py`, and what imports it
says `from .ops_scan import …`.
"""

import ast
from collections.abc import Iterable, Iterator
from importlib.resources import files

_PACKAGE = "hf_linear_attn"
_RULE = f"code that travels with models imports as `from {_PACKAGE}.floor.module import name`"


def flat_name(module: str) -> str:
    """Name of a module's file in the folder, without its ending."""
    return "_".join(module.split(".")[1:])


def flatten(modules: Iterable[str]) -> dict[str, str]:
    """Sources of modules and of all they import from this package, inside functions too.

    Args:
        modules: full names.

    Returns:
        text by flat name.

    Raises:
        RuntimeError: an import that has no form in one folder.
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if flat_name(module) not in found:
            found[flat_name(module)], imported = _rewrite(module)
            waiting += imported
    return found


def _rewrite(module: str) -> tuple[str, list[str]]:
    """A module's text with its imports made flat, and what it imports from this package."""
    text = _source(module)
    lines, imported = text.split("\n"), []
    for node in _own_imports(ast.parse(text), module):
        assert node.module is not None
        written, row = f"from {node.module} import", node.lineno - 1
        if written not in lines[row]:
            raise RuntimeError(f"{module}, line {node.lineno}: {_RULE}.")
        lines[row] = lines[row].replace(written, f"from .{flat_name(node.module)} import", 1)
        imported.append(node.module)
    return "\n".join(lines), imported


def _own_imports(tree: ast.Module, module: str) -> Iterator[ast.ImportFrom]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wrong = any(alias.name.split(".")[0] == _PACKAGE for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _PACKAGE:
            parents = [f"{node.module}.{alias.name}" for alias in node.names]
            wrong = node.module == _PACKAGE or any(map(_is_module, parents))
            if not wrong:
                yield node
        else:
            wrong = isinstance(node, ast.ImportFrom) and node.level > 0
        if wrong:
            raise RuntimeError(f"{module}, line {node.lineno}: {_RULE}.")  # pyright: ignore


def _is_module(name: str) -> bool:
    path = files(_PACKAGE).joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_name(f"{path.name}.py").is_file()  # pyright: ignore


def _source(module: str) -> str:
    folder = files(_PACKAGE).joinpath(*module.split(".")[1:-1])
    last = module.split(".")[-1]
    file = folder.joinpath(f"{last}.py")
    if not file.is_file():
        file = folder.joinpath(last, "__init__.py")
    return file.read_text(encoding="utf-8")
