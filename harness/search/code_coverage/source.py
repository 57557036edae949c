"""The system's own code: its packages, their files, and their loaded functions.

A function is counted if its loaded code equals that of its file at the start of the search. It is not counted if the
code was changed at import (pytest rewrites assertions of test modules), or if the file was edited before the search
began. Later edits make no difference.
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

from assay.harness.search.code_coverage.points import FunctionPoints, find_functions


class CodeKey(NamedTuple):
    """Location of a function's definition: its file, qualified name and first line."""

    file: str
    name: str
    first: int


@dataclass(frozen=True)
class SourceModule:
    """A module: ``name`` as it is imported, ``path`` as in its code objects, ``label``: a short name for the user."""

    name: str
    label: str
    path: str
    text: bytes
    functions: tuple[FunctionPoints, ...]

    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)


def find_modules(packages: Iterable[str]) -> tuple[SourceModule, ...]:
    """Returns all modules of these packages and modules, sorted by name, loaded or not.

    Files that this interpreter cannot import, such as code templates or dangling links, are skipped. Raises
    ``ValueError`` for a name without Python source.
    """
    modules: dict[str, SourceModule] = {}
    for package in packages:
        for name, path in _find_files(package):
            try:
                text = path.read_bytes()
                tree = ast.parse(text, str(path))
            except (OSError, SyntaxError, ValueError):
                continue
            label = _make_label(path, name.split(".")[package.count(".") :])
            modules[name] = SourceModule(name, label, str(path), text, find_functions(tree))
    labels = Counter(module.label for module in modules.values())
    return tuple(
        replace(module, label=_make_label(Path(module.path), name.split("."))) if labels[module.label] > 1 else module
        for name, module in sorted(modules.items())
    )


def _make_label(path: Path, names: Sequence[str]) -> str:
    """Returns a label such as ``server/log.py``; it is unique if ``names`` has all parts of the module's name."""
    return "/".join(names) + ("/__init__.py" if path.name == "__init__.py" else ".py")


def _find_files(package: str) -> Iterator[tuple[str, Path]]:
    try:
        spec = importlib.util.find_spec(package)
    except Exception:  # noqa: BLE001 - this imports parent packages, which may raise anything
        spec = None
    if spec is None or (spec.submodule_search_locations is None and not str(spec.origin).endswith(".py")):
        raise ValueError(f"the system's code is declared to be in {package}, which has no Python source")
    if spec.submodule_search_locations is None:
        yield package, Path(str(spec.origin))
        return
    for folder in map(Path, spec.submodule_search_locations):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join([package, *parts[: -1 if parts[-1] == "__init__" else None]]), path


def compile_functions(source: ast.Module | bytes, path: str) -> dict[CodeKey, CodeType]:
    """Compiles a module, and returns the code of each function in it."""
    return {make_key(code): code for code in iterate_nested_code(compile(source, path, "exec", dont_inherit=True))}


def iterate_nested_code(code: CodeType) -> Iterator[CodeType]:
    """Yields the code objects nested in a code object, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from iterate_nested_code(constant)


def make_key(code: CodeType) -> CodeKey:
    return CodeKey(code.co_filename, code.co_qualname, code.co_firstlineno)


def is_same_code(one: CodeType, other: CodeType) -> bool:
    """Returns whether two code objects do the same at the same lines."""
    return _get_code_shape(one) == _get_code_shape(other) and all(
        is_same_code(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else type(a) is type(b) and a == b
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _get_code_shape(code: CodeType) -> tuple[object, ...]:
    return (
        code.co_code, code.co_linetable, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_flags, len(code.co_consts),
    )  # fmt: skip


@dataclass(frozen=True)
class LoadedFunctions:
    """Loaded functions of one module, by definition. A ``def`` that was executed several times made several functions.

    ``unchanged``: the functions whose code equals the file's. ``changed``: the definitions whose code differs.
    """

    unchanged: Mapping[CodeKey, list[FunctionType]]
    changed: frozenset[CodeKey]


def find_loaded(modules: Iterable[SourceModule]) -> dict[str, LoadedFunctions]:
    """Returns the loaded functions by module, for loaded modules, except functions hidden by :func:`gc.freeze`."""
    loaded = {module.path: module for module in modules if module.name in sys.modules}
    functions: defaultdict[str, defaultdict[CodeKey, list[FunctionType]]] = defaultdict(lambda: defaultdict(list))
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename in loaded:
            functions[one.__code__.co_filename][make_key(one.__code__)].append(one)
    return {module.name: _split_by_source(module, functions[path]) for path, module in loaded.items()}


def _split_by_source(module: SourceModule, functions: Mapping[CodeKey, list[FunctionType]]) -> LoadedFunctions:
    wanted = {CodeKey(module.path, function.name, function.first) for function in module.functions}
    code = compile_functions(module.text, module.path)
    unchanged, changed = {}, set()
    for key in wanted & functions.keys():
        if key in code and all(is_same_code(code[key], function.__code__) for function in functions[key]):
            unchanged[key] = functions[key]
        else:
            changed.add(key)
    return LoadedFunctions(unchanged, frozenset(changed))
