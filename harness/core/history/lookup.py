"""Imports the names of this package that need Arrow on first use."""

from importlib import import_module
from typing import Any, Final

PACKAGE: Final = "assay.harness.core.history"
HOMES: Final = {
    "HistoryReader": "reader",
    "HistoryWriter": "writer",
    **dict.fromkeys(("EFFECTS", "OPS", "SCHEMAS"), "schema"),
}
"""By name, the module that defines it."""


def __getattr__(name: str) -> Any:
    """Returns a lazily imported name; the package uses this as its own ``__getattr__``."""
    if name not in HOMES:
        raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
    return getattr(import_module(f"{PACKAGE}.{HOMES[name]}"), name)
