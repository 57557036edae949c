"""Records what a client returns, or reports why it cannot be recorded: user code may return anything."""

import typing
from array import array
from collections.abc import Callable, Sequence
from numbers import Integral
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec

from assay.harness.core.history.data_sets import UNRECORDED, HistoryError
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.core.printable import to_encodable
from assay.harness.core.report import RunReport

_TYPES: Final[dict[type, tuple[type, str]]] = {int: (Integral, "a whole number"), str: (str, "text")}

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1

_OUTCOMES: Final = frozenset(Outcome)


class Recorder(Protocol):
    """Receives completed operations: :class:`assay.harness.core.history.HistoryWriter`, or a list in a test."""

    def completed(self, completed: Completed, effects: Sequence[Effect]) -> None: ...


class EffectRecorder:
    """Validates each operation with its effects and records it. An invalid value is reported as an exception of the
    client.
    """

    def __init__(self, recorder: Recorder, report: RunReport) -> None:
        self._recorder = recorder
        self._report = report
        self._seen: set[object] = set()

    def effects(self, completed: Completed, derive: Callable[[Completed], Sequence[Effect]]) -> Sequence[Effect]:
        """Returns the effects of an unfinished operation; none if they are invalid, which is reported when it ends."""
        try:
            return self._checked(derive(completed))
        except Exception:  # noqa: BLE001 - user code
            return ()

    def record(self, completed: Completed, derive: Callable[[Completed], Sequence[Effect]]) -> None:
        """Records an operation; ``derive`` is the client's ``effects``.

        Raises ``HistoryError`` for an argument that has no JSON form.
        """
        try:
            effects = self._checked(derive(completed))
        except Exception as error:  # noqa: BLE001 - user code; the traceback is reported, and the verdict is unknown
            self._unexpected(completed, error)
            effects = (Effect(UNRECORDED, str(completed.operation.key or "")),)
        if completed.completion.error is not None:
            completed = self._with_text(completed)
        try:
            self._recorder.completed(completed, effects)
        except HistoryError as error:
            if completed.completion.result is None:
                raise
            self._unexpected(completed, error)
            bare = msgspec.structs.replace(completed.completion, result=None)
            self._recorder.completed(msgspec.structs.replace(completed, completion=bare), effects)

    def _with_text(self, completed: Completed) -> Completed:
        """Returns the operation with an error that fits its text column. Otherwise a whole batch would fail to convert
        later.
        """
        error: Any = completed.completion.error
        if not isinstance(error, str):
            wrong = TypeError(f"the error of a completion is {error!r}: it takes text")
            self._unexpected(completed, wrong)
            error = repr(error)
        if (whole := to_encodable(error)) == completed.completion.error:
            return completed
        replaced = msgspec.structs.replace(completed.completion, error=whole)
        return msgspec.structs.replace(completed, completion=replaced)

    def _unexpected(self, completed: Completed, error: Exception) -> None:
        self._report.unexpected(completed.index, completed.process, completed.operation.f, error)

    def _checked(self, effects: Any) -> Sequence[Effect]:
        """Checks the class and the numbers of every effect, and all columns of the first effect of each kind.

        Checking the columns of all effects would cost as much as recording them, and a wrong type is in all effects of
        a kind. A number beyond 64 bits comes with a single value. Raises ``TypeError`` or ``ValueError``.
        """
        if not isinstance(effects, Sequence) or isinstance(effects, str):
            raise TypeError(f"effects returned {effects!r}, not a list of Effect")
        for one in effects:
            if not isinstance(one, Effect):
                raise TypeError(f"effects returned {one!r} in its list, not an Effect")
            if one.outcome is not None and one.outcome not in _OUTCOMES:
                raise TypeError(
                    f"outcome of an effect of kind {one.kind!r} is {one.outcome!r}, none of {', '.join(Outcome)}"
                )
            if one.kind not in self._seen:
                _require_column_types(one)
                self._seen.add(one.kind)
            try:
                array("q", filter(None, _numbers(one)))
            except (OverflowError, TypeError):
                _require_column_types(
                    one
                )  # which names the column, or finds nothing wrong with a number of an unusual type
        return effects


def _require_column_types(effect: Effect) -> None:
    for name, (wanted, word) in _plain_column_types().items():
        value = getattr(effect, name)
        if value is None and name not in ("kind", "key"):
            continue
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is Integral):
            raise TypeError(f"{name} of an effect of kind {effect.kind!r} is {value!r}: it takes {word}")
        if wanted is Integral and _is_beyond_64_bits(value):
            raise ValueError(f"{name} of an effect of kind {effect.kind!r} is {value!r}: it takes {word} of 64 bits")


def _is_beyond_64_bits(number: Any) -> bool:
    return not _LEAST <= number <= _MOST


def _plain_column_types() -> dict[str, tuple[type, str]]:
    """Returns the type and its name in messages for each column that takes one plain type."""
    hints = typing.get_type_hints(Effect)
    plain = {name: next(iter(typing.get_args(hint) or (hint,))) for name, hint in hints.items()}
    return {name: _TYPES[kind] for name, kind in plain.items() if kind in _TYPES}


_numbers: Final = attrgetter(*(name for name, (wanted, _) in _plain_column_types().items() if wanted is Integral))
"""Gets the columns of an effect that take whole numbers."""
