"""Compiles functions with numba.

The machine code is cached next to the source or in numba's cache folder. If neither is writable, functions are compiled
once per process.

Importing numba and loading compiled code takes a second, which a search of few operations does not need. So all
functions are plain Python until ``compile_all``. Without numba (the optional dependency ``assay[fast]``), or with
``NUMBA_DISABLE_JIT=1`` for a debugger, all functions stay plain Python. Then the verdicts are equal, but a search takes
a hundred times as long.

numba reads ``.numba_config.yaml`` in the current folder. This file can name a cache folder, from which numba loads
pickles, so a stranger's folder could execute code. :func:`_import_numba` keeps numba from reading it. Settings in the
environment (``NUMBA_...``) count.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, ParamSpec, TypeVar

from assay.checkers.linearizability.model import Model, ModelError, calling_model

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE: Final = __name__.rpartition(".")[0]
_plain: dict[int, Callable[..., Any]] = {}
"""Registered functions that are still plain Python, by ``id``."""
MISSING: Final[Any] = object()


def register_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Registers a function of this package for ``compile_all``."""
    _plain[id(function)] = function
    return function


def can_compile() -> bool:
    """Returns whether numba is installed."""
    return find_spec("numba") is not None


def is_all_compiled() -> bool:
    return not _plain


def compile_all() -> None:
    """Replaces plain functions with compiled ones in every module that has imported them. Does nothing without numba.

    A search that has begun in plain Python can continue with the compiled functions, because its state is in arrays.
    """
    if not can_compile():
        return
    compiled = {identity: _compile(function) for identity, function in _plain.items()}
    for module in [module for name, module in sys.modules.items() if name.startswith(_PACKAGE)]:
        for name, value in list(vars(module).items()):
            if id(value) in compiled:
                setattr(module, name, compiled[id(value)])
    _plain.clear()


def _import_numba() -> Any:
    """Imports numba without a configuration file of the current folder: without a YAML parser, it reads none."""
    if "numba" not in sys.modules:
        yaml = sys.modules.get("yaml", MISSING)
        sys.modules["yaml"] = None  # type: ignore[assignment]
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "A Numba config file is found")
                import numba.core.config
        finally:
            del sys.modules["yaml"]
            if yaml is not MISSING:
                sys.modules["yaml"] = yaml
    import numba

    numba.core.config._config_fname = os.devnull  # it looks for the file again whenever it compiles
    return numba


def _compile(function: Callable[..., Any]) -> Any:
    numba = _import_numba()
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba finds no writable cache folder
        return numba.njit(nogil=True)(function)


def compile_step(step: Callable[..., Any]) -> Any:
    """Returns a model's step for the search, compiled if numba is installed. Raises ``ModelError`` if it cannot be
    compiled."""
    if not can_compile():
        return step
    numba = _import_numba()
    from numba import types
    from numba.core.errors import NumbaError

    if numba.config.DISABLE_JIT:
        return step
    # (state, f, x, y) -> (whether the state allows the action, state after it), as `Model.step`
    signature: Final = types.Tuple((types.boolean, types.int64))(types.int64, types.int64, types.int64, types.int64)
    try:
        if not step.__module__.startswith("assay.checkers."):
            _require_integers(step)
        try:
            return numba.cfunc(signature, cache=True)(step)
        except RuntimeError:  # numba has no cache location for code that was not defined in a file
            return numba.cfunc(signature)(step)
    except NumbaError as error:
        why = " ".join(str(error).split())[:400]
        raise ModelError(
            f"{step.__qualname__} cannot be compiled; write it in the Python that numba knows, on integers, or set "
            f"compiled = False in its class: {why}"
        ) from error


def _require_integers(step: Callable[..., Any]) -> None:
    """Raises ``ModelError`` if a state may be a float, because the signature would silently round it."""
    numba = _import_numba()
    from numba import types

    inferred = numba.njit(step)
    inferred.compile((types.int64,) * 4)
    returned = inferred.nopython_signatures[0].return_type
    if isinstance(returned, types.BaseTuple) and not all(
        isinstance(one, types.Integer | types.Boolean) for one in returned
    ):
        raise ModelError(
            f"{step.__qualname__} returns {returned}; a compiled step returns whether it is allowed, and an integer "
            "state (// divides integers); for any other state set compiled = False in its class"
        )


@contextmanager
def catching_step_errors(model: Model) -> Iterator[None]:
    """Turns exceptions of a model's step into ``ModelError`` during the search, also in compiled code.

    Numba ignores an exception in a callback and calls ``sys.unraisablehook``. Without this function, the search would
    treat the action as one that the state does not allow.
    """
    ignored: list[BaseException] = []
    former = sys.unraisablehook

    def record_error(error: Any) -> None:
        if not isinstance(error.exc_value, Exception) or "numba" not in str(error.object):
            former(error)  # an interrupt is none of the model
        elif not ignored:
            ignored.append(error.exc_value)

    sys.unraisablehook = record_error
    try:
        with calling_model(model, "step"):
            yield
            if ignored:
                raise ignored[0]
    finally:
        sys.unraisablehook = former
