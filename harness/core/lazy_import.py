"""Modules that are loaded on first use.

The process that plays the runs of a search forks, so it must have one thread and little memory. NumPy, Arrow and DuckDB
start threads, and only judging needs them.
"""

from importlib import import_module
from typing import Any


class LazyModule:
    """Placeholder for a module: ``LazyModule("numpy").array`` imports it."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self.__name), attribute)
        setattr(self, attribute, found)
        return found
