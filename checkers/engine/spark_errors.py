"""What goes wrong in the JVM, as an ``EngineError`` of one line."""

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
"""What a call raises whose JVM has ended, or that went wrong there."""


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Raises ``EngineError`` for what goes wrong inside; ``what``: the query, or what was done."""
    try:
        yield
    except (PySparkException, *LOST) as error:
        text = " ".join(what.split())
        text = text if len(text) <= 200 else f"{text[:200]} ..."
        raise EngineError(f"Spark could not run {text}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """One line: that of the exception in the JVM, since py4j's own names no more than the method that was called; and
    where that was one of Python, in a task, its own.
    """
    if isinstance(error, (Py4JNetworkError, ConnectionError, EOFError)):
        return JVM_ENDED
    try:
        text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    except (Py4JError, OSError):  # the exception lies in the JVM
        text = JVM_ENDED
    _, of_python, frames = str(text).rpartition(_TRACEBACK)
    if of_python:
        return next((line for line in frames.splitlines() if line[:1].strip()), "a task of Python failed")
    return str(text).strip().partition("\n")[0]
