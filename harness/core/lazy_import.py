"""Modules that are loaded when they are first used.

The process that plays the runs of a search forks: it must have one thread, and little memory of its own. NumPy, Arrow
and DuckDB start threads, and are for judging alone.
"""

from importlib import import_module
from typing import Any


class Late:
    """Stands for a module; ``Late("numpy").array`` imports it."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self.__name), attribute)
        setattr(self, attribute, found)
        return found
