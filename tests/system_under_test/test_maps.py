"""The docstring of each package of the broker names every module that lies there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent / "system_under_test"
PACKAGES = sorted(file.parent.relative_to(ROOT) for file in ROOT.rglob("__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_a_package_names_its_modules(package: Path) -> None:
    folder = ROOT / package
    described = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"``(?:\w+\.)*(\w+)``", described))
    there = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert not there - named, "modules that the map leaves out"
