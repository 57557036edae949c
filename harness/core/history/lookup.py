"""Finds the names of this package that need Arrow, when they are first used."""

from importlib import import_module
from typing import Any, Final

PACKAGE: Final = "assay.harness.core.history"
HOMES: Final = {
    "HistoryReader": "reader",
    "HistoryWriter": "writer",
    **dict.fromkeys(("EFFECTS", "OPS", "SCHEMAS"), "schema"),
}
"""Name to the module that has it."""


def __getattr__(name: str) -> Any:
    """Of the package, which imports this function."""
    if name not in HOMES:
        raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
    return getattr(import_module(f"{PACKAGE}.{HOMES[name]}"), name)
