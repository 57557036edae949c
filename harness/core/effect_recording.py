"""Validates and records the results of clients. User code may return anything, so invalid values are reported."""

import typing
from array import array
from collections.abc import Callable, Sequence
from numbers import Integral
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec

from assay.harness.core.history.data_sets import UNRECORDED, HistoryError
from assay.harness.core.interpreter_status import InterpreterStatus
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.core.printable import to_encodable

_TYPES: Final[dict[type, tuple[type, str]]] = {int: (Integral, "a whole number"), str: (str, "text")}

_OUTCOMES: Final = frozenset(Outcome)


class Recorder(Protocol):
    """Receives completed operations: :class:`assay.harness.core.history.HistoryWriter`, or a list in a test."""

    def completed(self, completed: Completed, effects: Sequence[Effect]) -> None: ...


class EffectRecorder:
    """Validates each operation with its effects and records it. An invalid value is reported as an exception of the
    client.
    """

    def __init__(self, recorder: Recorder, status: InterpreterStatus) -> None:
        self._recorder = recorder
        self._status = status
        self._checked_kinds: set[object] = set()

    def effects(self, as_if_unknown: Completed, derive: Callable[[Completed], Sequence[Effect]]) -> Sequence[Effect]:
        """Returns the effects that an operation in progress has so far.

        ``as_if_unknown``: the operation, as it would be recorded if it ended now with an unknown outcome. Returns no
        effects if they are invalid; ``record`` reports that when the operation ends.
        """
        try:
            return self._validate(derive(as_if_unknown))
        except Exception:  # noqa: BLE001 - user code
            return ()

    def record(self, completed: Completed, derive: Callable[[Completed], Sequence[Effect]]) -> None:
        """Records an operation; ``derive`` is the client's ``effects``.

        Raises ``HistoryError`` for an argument that has no JSON form.
        """
        try:
            effects = self._validate(derive(completed))
        except Exception as error:  # noqa: BLE001 - user code; the traceback is reported, and the verdict is unknown
            self._report_exception(completed, error)
            # This effect notes that the operation's effects are unknown.
            effects = (Effect(UNRECORDED, to_encodable(str(completed.operation.key or ""))),)
        if completed.completion.error is not None:
            completed = self._with_text_error(completed)
        try:
            self._recorder.completed(completed, effects)
        except HistoryError as error:
            if completed.completion.result is None:
                raise
            self._report_exception(completed, error)
            without_result = msgspec.structs.replace(completed.completion, result=None)
            self._recorder.completed(msgspec.structs.replace(completed, completion=without_result), effects)

    def _with_text_error(self, completed: Completed) -> Completed:
        """Returns the operation with an error that is valid text. Another value would make a whole batch fail."""
        error: Any = completed.completion.error
        if not isinstance(error, str):
            error = _represent(error)
            self._report_exception(completed, TypeError(f"the error of a completion is {error}: it takes text"))
        completion = msgspec.structs.replace(completed.completion, error=to_encodable(error))
        return msgspec.structs.replace(completed, completion=completion)

    def _report_exception(self, completed: Completed, error: Exception) -> None:
        self._status.add_exception(completed.index, completed.process, completed.operation.f, error)

    def _validate(self, effects: Any) -> Sequence[Effect]:
        """Checks the class, the numbers and the text of every effect, and all columns of the first one of each kind.

        Checking the columns of all effects would cost as much as recording them. A wrong type occurs in all effects of
        a kind, but a number beyond 64 bits or half a surrogate may be a single value. Raises ``TypeError`` or
        ``ValueError``.
        """
        if not isinstance(effects, Sequence) or isinstance(effects, str):
            raise TypeError(f"effects returned {effects!r}, not a list of Effect")
        for effect in effects:
            if not isinstance(effect, Effect):
                raise TypeError(f"effects returned {effect!r} in its list, not an Effect")
            if effect.outcome is not None and effect.outcome not in _OUTCOMES:
                raise TypeError(
                    f"outcome of an effect of kind {effect.kind!r} is {effect.outcome!r}, none of {', '.join(Outcome)}"
                )
            if effect.kind not in self._checked_kinds:
                _require_column_types(effect)
                self._checked_kinds.add(effect.kind)
            try:
                array("q", filter(None, _get_numbers(effect)))
                "".join(filter(None, _get_texts(effect))).encode()
            except (OverflowError, TypeError, UnicodeEncodeError):
                # Raises an error that names the column, or accepts a number of an unusual type.
                _require_column_types(effect)
        return effects


def _require_column_types(effect: Effect) -> None:
    for name, (type_, noun) in _get_plain_column_types().items():
        value = getattr(effect, name)
        if value is None and name not in ("kind", "key"):
            continue
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ is Integral):
            raise TypeError(f"{name} of an effect of kind {effect.kind!r} is {value!r}: it takes {noun}")
        if isinstance(value, str) and to_encodable(value) != value:
            raise ValueError(f"{name} of an effect of kind {effect.kind!r} is {value!r}: it takes text that is UTF-8")
        if type_ is Integral and _is_beyond_64_bits(value):
            raise ValueError(f"{name} of an effect of kind {effect.kind!r} is {value!r}: it takes {noun} of 64 bits")


def _represent(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - user code, or a value that is nested too deep
        return f"of type {type(value).__name__} ({type(error).__name__} in its repr)"


def _is_beyond_64_bits(number: Any) -> bool:
    return not -(2**63) <= number < 2**63


def _get_plain_column_types() -> dict[str, tuple[type, str]]:
    """Returns, for each column of one plain type, this type and its name in messages."""
    hints = typing.get_type_hints(Effect)
    plain = {name: next(iter(typing.get_args(hint) or (hint,))) for name, hint in hints.items()}
    return {name: _TYPES[kind] for name, kind in plain.items() if kind in _TYPES}


_get_numbers: Final = attrgetter(*(name for name, (type_, _) in _get_plain_column_types().items() if type_ is Integral))
"""Gets the columns of an effect that take whole numbers."""

_get_texts: Final = attrgetter(*(name for name, (type_, _) in _get_plain_column_types().items() if type_ is str))
"""Gets the columns of an effect that take text."""
