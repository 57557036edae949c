"""Collects this project's own workloads, in a checkout, under the names by which everything else imports them.

In a checkout the parts of ``assay`` are links to folders at its top, so ``pytest workloads/`` names a file by another
path than ``import assay.workloads`` does. Left alone, pytest would load it a second time, as ``workloads.test_log``.
An installed package has no links, and nothing happens here.
"""

import importlib
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

PACKAGE = Path(__file__).parents[2]
"""The folder that ``import assay`` found."""


@cache
def parts() -> dict[Path, str]:
    """The folders that the links lead to, by name: ``/checkout/workloads`` is ``workloads``."""
    return {link.resolve(): link.name for link in PACKAGE.iterdir() if link.is_symlink()}


def imported_name(path: Path) -> str | None:
    """``assay.workloads.test_log`` for the file that has that name; None for any file that is not one of ours."""
    for folder in path.parents:
        if folder in parts():
            inside = path.relative_to(folder).with_suffix("").parts
            return ".".join((PACKAGE.name, parts()[folder], *inside))
    return None


class OwnModule(pytest.Module):
    """A test module that is imported by its name in the package, and not by its path."""

    def _getobj(self) -> ModuleType:
        name = imported_name(self.path)
        assert name is not None, "only made for paths that have one"
        try:
            return importlib.import_module(name)
        except Exception as error:
            raise self.CollectError("".join(traceback.format_exception(error))) from error


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A folder of ours is a plain folder: pytest would import the ``__init__`` of a package by another name."""
    return pytest.Dir.from_parent(parent, path=path) if path in parts() else None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return None if imported_name(module_path) is None else OwnModule.from_parent(parent, path=module_path)
