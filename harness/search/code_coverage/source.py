"""The system's own code: which packages that is, their files, and what of them is loaded.

A function counts when what is loaded is what its file said when the search began. Code that was changed while it was
imported (pytest rewrites assertions of test modules), or whose file had been edited by then, is left as it is and is
not counted. What is edited later makes no difference.
"""

import ast
import gc
import importlib.util
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

from assay.harness.search.code_coverage.points import Function, functions


class CodeKey(NamedTuple):
    """Where a function is defined: its file, its qualified name, its first line."""

    file: str
    name: str
    first: int


@dataclass(frozen=True)
class Module:
    """``name`` as it is imported; ``path`` as the code of it has it; ``label``: short, for people."""

    name: str
    label: str
    path: str
    text: bytes
    functions: tuple[Function, ...]

    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)


def modules(packages: Iterable[str]) -> tuple[Module, ...]:
    """All that these packages and modules consist of, in the order of their names, loaded or not. Files that this
    interpreter could not import, such as templates of code or links that lead nowhere, are no modules.

    Raises ``ValueError`` for a name that no Python source can be found for.
    """
    found: dict[str, Module] = {}
    for package in packages:
        for name, path in _files(package):
            try:
                text = path.read_bytes()
                tree = ast.parse(text, str(path))
            except (OSError, SyntaxError, ValueError):
                continue
            label = _label(path, name.split(".")[package.count(".") :])
            found[name] = Module(name, label, str(path), text, functions(tree))
    labels = Counter(module.label for module in found.values())
    return tuple(
        replace(found[name], label=_label(Path(found[name].path), name.split(".")))
        if labels[found[name].label] > 1
        else found[name]
        for name in sorted(found)
    )


def _label(path: Path, names: Sequence[str]) -> str:
    """``server/log.py`` of the names from the package on; with all of its names it is the only one."""
    return "/".join(names) + ("/__init__.py" if path.name == "__init__.py" else ".py")


def _files(package: str) -> Iterator[tuple[str, Path]]:
    try:
        spec = importlib.util.find_spec(package)
    except Exception:  # noqa: BLE001 - a package above it is imported, which may do anything
        spec = None
    if spec is None or (spec.submodule_search_locations is None and not str(spec.origin).endswith(".py")):
        raise ValueError(f"the code of the system is said to be in {package}, of which there is no Python source")
    if spec.submodule_search_locations is None:
        yield package, Path(str(spec.origin))
        return
    for folder in map(Path, spec.submodule_search_locations):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join([package, *parts[: -1 if parts[-1] == "__init__" else None]]), path


def compiled(tree: ast.Module, path: str) -> dict[CodeKey, CodeType]:
    """The code of each function that is defined in it."""
    return by_key(compile(tree, path, "exec", dont_inherit=True))


def by_key(whole: CodeType) -> dict[CodeKey, CodeType]:
    return {key_of(code): code for code in inner(whole)}


def inner(code: CodeType) -> Iterator[CodeType]:
    """The code objects in it, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from inner(constant)


def key_of(code: CodeType) -> CodeKey:
    return CodeKey(code.co_filename, code.co_qualname, code.co_firstlineno)


def alike(one: CodeType, other: CodeType) -> bool:
    """Do they do the same, at the same lines?"""
    return _shape(one) == _shape(other) and all(
        alike(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else type(a) is type(b) and a == b
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _shape(code: CodeType) -> tuple[object, ...]:
    return (
        code.co_code, code.co_linetable, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_flags, len(code.co_consts),
    )  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """The functions of one module that exist now: several of a definition that was run several times.

    ``same``: those that do what the file says, and ``other``: those that do not.
    """

    same: Mapping[CodeKey, list[FunctionType]]
    other: frozenset[CodeKey]


def loaded(everything: Iterable[Module]) -> dict[str, Loaded]:
    """By module, of those that are loaded. Functions that :func:`gc.freeze` has put aside are not seen."""
    there = {module.path: module for module in everything if module.name in sys.modules}
    found: defaultdict[str, defaultdict[CodeKey, list[FunctionType]]] = defaultdict(lambda: defaultdict(list))
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename in there:
            found[thing.__code__.co_filename][key_of(thing.__code__)].append(thing)
    return {module.name: _told_apart(module, found[path]) for path, module in there.items()}


def _told_apart(module: Module, functions: Mapping[CodeKey, list[FunctionType]]) -> Loaded:
    wanted = {CodeKey(module.path, function.name, function.first) for function in module.functions}
    code = by_key(compile(module.text, module.path, "exec", dont_inherit=True))
    same, other = {}, set()
    for key in wanted & functions.keys():
        if key in code and all(alike(code[key], function.__code__) for function in functions[key]):
            same[key] = functions[key]
        else:
            other.add(key)
    return Loaded(same, frozenset(other))
