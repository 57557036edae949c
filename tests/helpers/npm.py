"""Packages of JavaScript that `make npm` has installed for tests, in .venv/npm."""

from __future__ import annotations

from pathlib import Path

import pytest

MODULES = Path(__file__).parents[2] / ".venv" / "npm" / "node_modules"


def package(name: str) -> Path:
    """Its folder; skips the test where it is not there."""
    if not (MODULES / name / "package.json").exists():
        pytest.skip(f"no {name}: make npm (it needs npm)")
    return MODULES / name
