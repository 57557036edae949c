"""Import of this project's own modules by pytest: each under one name, with asserts rewritten only in tests.

In a checkout the parts of ``assay`` are links to folders at its top. Therefore ``pytest workloads/`` names a file by
another path than ``import assay.workloads``, and pytest would load it twice. An installed package has no links.

pytest rewrites the asserts of every module of a distribution that has a plugin, and compiles each of them again. This
would affect hundreds of modules here, whose asserts only state invariants.
"""

import importlib
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = Path(__file__).parents[2]
"""The folder that ``import assay`` found."""


@cache
def find_linked_folders() -> dict[Path, str]:
    """Returns the targets of the links with their names: ``/checkout/workloads`` is ``workloads``."""
    return {link.resolve(): link.name for link in PACKAGE.iterdir() if link.is_symlink()}


def find_module_name(path: Path) -> str | None:
    """Returns the module name of a file, such as ``assay.workloads.test_log``; None if it is not one of ours."""
    for folder in path.parents:
        if folder in find_linked_folders():
            inside = path.relative_to(folder).with_suffix("").parts
            return ".".join((PACKAGE.name, find_linked_folders()[folder], *inside))
    return None


class OwnModule(pytest.Module):
    """A test module that is imported by its name in the package, not by its path."""

    def _getobj(self) -> ModuleType:
        name = find_module_name(self.path)
        assert name is not None, "only files with a module name are collected by this class"
        try:
            return importlib.import_module(name)
        except Exception as error:
            raise self.CollectError("".join(traceback.format_exception(error))) from error


class PlainFinder:
    """Import finder that loads modules of the package without pytest's assert rewriting. It leaves tests to pytest."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{PACKAGE.name}.") or name.rpartition(".")[2].startswith(("test_", "conftest")):
            return None
        return PathFinder.find_spec(name, path, target)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Installs the finder. Nearly all modules are imported later than this."""
    finder = PlainFinder()
    sys.meta_path.insert(0, finder)
    early_config.add_cleanup(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects our folders as plain ones: pytest would import the ``__init__`` of a package by another name."""
    return pytest.Dir.from_parent(parent, path=path) if path in find_linked_folders() else None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return None if find_module_name(module_path) is None else OwnModule.from_parent(parent, path=module_path)
