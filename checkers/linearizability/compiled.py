"""How functions are compiled: once per machine, kept next to the source or in numba's cache folder.

Importing numba and compiling cost seconds, which those who only read a model need not pay: the search imports this.
With ``NUMBA_DISABLE_JIT=1`` everything runs as plain Python, slower by two orders of magnitude, for a debugger.
"""

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba
from numba import types
from numba.core.errors import NumbaError

from assay.checkers.linearizability.model import ModelError

P = ParamSpec("P")
R = TypeVar("R")

_STEP: Final = types.Tuple((types.boolean, types.int64))(types.int64, types.int64, types.int64, types.int64)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles at the first call, and keeps the machine code."""
    return cast("Callable[P, R]", numba.njit(cache=True, nogil=True)(function))


def compiled_step(step: Callable[..., Any]) -> Any:
    """A model's step as compiled code calls it, for any model. Raises ``ModelError`` if it cannot be."""
    if numba.config.DISABLE_JIT:
        return step
    try:
        try:
            return numba.cfunc(_STEP, cache=True)(step)
        except RuntimeError:  # numba finds no place to keep what was not defined in a file
            return numba.cfunc(_STEP)(step)
    except NumbaError as error:
        why = " ".join(str(error).split())[:400]
        raise ModelError(
            f"{step.__qualname__} cannot be compiled; write it in the Python that numba knows, on integers, or set "
            f"compiled = False in its class: {why}"
        ) from error
