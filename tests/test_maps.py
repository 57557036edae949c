"""The docstring of each package is a map: it names every module that lies there, and says who imports what."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from helpers.layout import PARTS, ROOT

MAPS = sorted(file.parent.relative_to(ROOT) for part in PARTS for file in (ROOT / part).rglob("__init__.py"))


def described(package: Path) -> str:
    return ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("package", MAPS, ids=str)
def test_a_package_names_its_modules(package: Path) -> None:
    folder = ROOT / package
    named = set(re.findall(r"``(?:\w+\.)*(\w+)``", described(package)))
    there = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert not there - named, "modules that the map leaves out"


@pytest.mark.parametrize("package", MAPS, ids=str)
def test_a_package_says_what_it_imports_or_who_imports_it(package: Path) -> None:
    assert re.search(r"\bimport", described(package), re.IGNORECASE), "an arrow to or from another part"
