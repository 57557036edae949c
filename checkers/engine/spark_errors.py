"""Converts failures in the JVM to an ``EngineError`` of one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from assay.checkers.engine.base import EngineError

JVM_ENDED: Final = "its JVM has ended"
CONTEXT_STOPPED: Final = "Spark has ended: its cluster, or another process, has stopped its context"
_TRACEBACK: Final = "Traceback (most recent call last):\n"
LOST: Final = (Py4JError, ConnectionError, EOFError)
"""Exceptions of a call whose JVM has ended, or that failed in the JVM."""


@contextmanager
def raising_engine_errors(what: str) -> Iterator[None]:
    """Raises ``EngineError`` for failures inside the block; ``what`` is the query, or the action."""
    try:
        yield
    except (PySparkException, *LOST) as error:
        text = " ".join(what.split())
        text = text if len(text) <= 200 else f"{text[:200]} ..."
        raise EngineError(f"Spark could not run {text}: {find_reason(error)}") from error


def find_reason(error: Exception) -> str:
    """Returns the reason in one line.

    It is the JVM exception's, because py4j's own names only the method that was called. If a Python task failed, it is
    the Python exception's.
    """
    if isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)):
        return JVM_ENDED
    try:
        text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    except (Py4JError, OSError):  # the exception's text is in the JVM
        text = JVM_ENDED
    _, of_python, frames = str(text).rpartition(_TRACEBACK)
    if of_python:
        return next((line for line in frames.splitlines() if line[:1].strip()), "a task of Python failed")
    return str(text).strip().partition("\n")[0]
