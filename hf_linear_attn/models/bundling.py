"""Modules of this package as one file.

Code that travels with a model is fetched file by file, each with a warning on the user's screen;
sixty modules are too many for that. Here they become one file: one section a module, each behind
those it imports, their imports of each other taken out. A name that two modules mean differently
gets the module's name added in both.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

_PACKAGE = "hf_linear_attn"
_RULE = f"code that travels with models imports as `from {_PACKAGE}.floor.module import name`"

Edit = tuple[int, int, int, str]
"""line from 0, first and last byte in it, what stands there instead"""


@dataclass
class _Module:
    name: str
    text: str
    tree: ast.Module
    own: list[ast.ImportFrom] = field(default_factory=list)
    """imports from this package"""
    meanings: dict[str, str] = field(default_factory=dict)
    """top-level name -> what it means: itself for what is made here, an import for the others"""
    taken: dict[str, tuple[str, str]] = field(default_factory=dict)
    """name -> (module of this package, name there) it is imported from"""


@cache
def bundle(name: str) -> str:
    """Text of one file with a module and all it imports from this package, also in functions.

    Args:
        name: the module's full name.

    Raises:
        RuntimeError: an import or a name that has no form in one file.
    """
    found: dict[str, _Module] = {}
    _collect(name, found)
    # In the order in which they were completed: what is imported comes first.
    ordered = list(found.values())
    clashing = _clashing(ordered)
    return "\n\n".join(_section(module, found, clashing) for module in ordered)


def _collect(name: str, found: dict[str, _Module], open_: tuple[str, ...] = ()) -> None:
    """Add a module behind those it needs when it is imported, and those of its functions."""
    if name in found or name in open_:
        return
    text = _source(name)
    module = _Module(name, text, ast.parse(text))
    module.own = list(_own_imports(module))
    for node in module.own:
        if node in module.tree.body:
            _collect(str(node.module), found, (*open_, name))
    _name_meanings(module)
    found[name] = module
    for node in module.own:
        _collect(str(node.module), found)


def _own_imports(module: _Module) -> Iterator[ast.ImportFrom]:
    for node in ast.walk(module.tree):
        wrong = False
        if isinstance(node, ast.Import):
            wrong = any(alias.name.split(".")[0] == _PACKAGE for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _PACKAGE:
            wrong = node.module == _PACKAGE or any(
                _is_module(f"{node.module}.{alias.name}") for alias in node.names
            )
            if not wrong:
                yield node
        elif isinstance(node, ast.ImportFrom):
            wrong = node.level > 0
        if wrong:
            raise RuntimeError(f"{module.name}, line {node.lineno}: {_RULE}.")  # pyright: ignore


def _name_meanings(module: _Module) -> None:
    for node in module.own:
        for alias in node.names:
            module.taken[alias.asname or alias.name] = (str(node.module), alias.name)
    for node in _outside(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if node not in module.own:
                for alias in node.names:
                    module.meanings[_bound(alias)] = _import_text(node, alias)
        else:
            for name in _made_by(node):
                module.meanings[name] = f"{module.name}.{name}"


def _outside(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements that are in no function and no class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from _outside(node)


def _made_by(node: ast.stmt) -> list[str]:
    """Names that a statement makes."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)]
    return [name for name in names if name != "__all__"]


def _clashing(modules: list[_Module]) -> set[str]:
    """Names with several meanings. Functions called `_` are used by no name."""
    meanings = defaultdict(set)
    for module in modules:
        for name, meaning in module.meanings.items():
            meanings[name].add(meaning)
    return {name for name, each in meanings.items() if len(each) > 1 and name != "_"}


def _section(module: _Module, found: dict[str, _Module], clashing: set[str]) -> str:
    """A module's text for the one file."""
    renamed = {name: _final(module.name, name, found, clashing) for name in module.taken}
    renamed |= {n: _own_name(module, n, clashing) for n in module.meanings}
    renamed = {name: new for name, new in renamed.items() if name != new}
    lines = module.text.rstrip("\n").split("\n")
    edits = sorted(_edits(module, renamed), reverse=True) if renamed else []
    for line, first, last, new in edits:
        row = lines[line].encode()
        lines[line] = (row[:first] + new.encode() + row[last:]).decode()
    for first, last, kept in sorted(_replaced(module, renamed), reverse=True):
        lines[first:last] = kept
    path = module.name.replace(".", "/")
    return "\n".join([f"# ---- {path} ----", "", *lines])


def _own_name(module: _Module, name: str, clashing: set[str]) -> str:
    if name not in clashing:
        return name
    return f"{name}_{'_'.join(module.name.split('.')[1:])}"


def _final(module: str, name: str, found: dict[str, _Module], clashing: set[str]) -> str:
    """What a name that is imported from this package is called in the one file."""
    source, there = found[module].taken[name]
    if there in found[source].taken:
        return _final(source, there, found, clashing)
    return _own_name(found[source], there, clashing)


def _edits(module: _Module, renamed: dict[str, str]) -> Iterator[Edit]:
    """Where names of the module are used or made."""
    outside = set(_outside(module.tree))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id in renamed:
            yield _edit(module, node.lineno, node.col_offset, node.id, renamed)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in renamed:
            if node in outside:
                first = node.col_offset + len(
                    "class " if isinstance(node, ast.ClassDef) else "def "
                )
                yield _edit(module, node.lineno, first, node.name, renamed)
        elif isinstance(node, ast.arg) and node.arg in renamed:
            raise RuntimeError(f"{module.name}, line {node.lineno}: {node.arg} means two things.")
    _check_not_local(module, renamed)


def _check_not_local(module: _Module, renamed: dict[str, str]) -> None:
    """A renamed name is bound at the top level alone."""
    scopes = [n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    for node in (node for scope in scopes for node in ast.walk(scope)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in renamed:
            raise RuntimeError(f"{module.name}, line {node.lineno}: {node.id} means two things.")


def _edit(module: _Module, lineno: int, first: int, name: str, renamed: dict[str, str]) -> Edit:
    last = first + len(name.encode())
    found = module.text.split("\n")[lineno - 1].encode()[first:last].decode()
    if found != name:
        # Inside an f-string Python 3.11 does not know the place.
        raise RuntimeError(f"{module.name}, line {lineno}: use {name} outside of the f-string.")
    return lineno - 1, first, last, renamed[name]


def _replaced(module: _Module, renamed: dict[str, str]) -> Iterator[tuple[int, int, list[str]]]:
    """Statements that go: imports from this package, `__all__`, and imports under a new name."""
    top = set(module.tree.body)
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.stmt):
            continue
        span = (node.lineno - 1, node.end_lineno or node.lineno)
        if node in module.own:
            yield *span, [] if node in top else [" " * node.col_offset + "pass"]
        elif isinstance(node, ast.Import | ast.ImportFrom) and node in top:
            if any(_bound(alias) in renamed for alias in node.names):
                yield *span, [_import_text(node, alias, renamed) for alias in node.names]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield *span, []


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def _import_text(
    node: ast.Import | ast.ImportFrom, alias: ast.alias, renamed: dict[str, str] | None = None
) -> str:
    name = (renamed or {}).get(_bound(alias), alias.asname)
    again = ast.alias(alias.name, name)
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import([again]))
    return ast.unparse(ast.ImportFrom(node.module, [again], node.level))


def _is_module(name: str) -> bool:
    folder, last = _place(name)
    return folder.joinpath(f"{last}.py").is_file() or folder.joinpath(last).is_dir()


def _source(name: str) -> str:
    folder, last = _place(name)
    file = folder.joinpath(f"{last}.py")
    if not file.is_file():
        file = folder.joinpath(last, "__init__.py")
    return file.read_text(encoding="utf-8")


def _place(name: str):
    *folders, last = name.split(".")[1:]
    return files(_PACKAGE).joinpath(*folders), last
