"""Describes a generator by the functions, operations and combinators that its author wrote."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from assay.harness.core.generator.base import Call, Generator, InSequence, OneOperation, Unfold, Wrapper
from assay.harness.core.generator.compose import Mix

MAX_PARTS: Final = 3
"""Maximum number of parts of one generator that the description includes."""


def describe_generator(generator: Generator) -> str:
    """Returns a name such as ``repeat(read)``, ``Drain`` or ``unfold(sends at test_bank.py:17)``, without the state."""
    name = type(generator).__name__
    if isinstance(generator, OneOperation):
        return generator.operation.f
    if isinstance(generator, Call):
        return _describe_function(generator.function)
    if isinstance(generator, Unfold):
        return f"unfold({_describe_function(generator.step)})"
    if isinstance(generator, Mix | InSequence):
        parts = [describe_generator(part) for part in generator.parts[:MAX_PARTS]]
        more = ["..."] if len(generator.parts) > MAX_PARTS else []
        return f"{'mix' if isinstance(generator, Mix) else 'sequence'}({', '.join([*parts, *more])})"
    if isinstance(generator, Wrapper):
        return f"{name.lower()}({describe_generator(generator.source)})"
    return name


def _describe_function(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
    return name if code is None else f"{name} at {Path(code.co_filename).name}:{code.co_firstlineno}"
