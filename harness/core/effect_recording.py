"""Validates and records the results of clients. User code may return anything, so invalid values are reported."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import astuple

from assay.harness.core.history.data_sets import EFFECTS, UNRECORDED, HistoryError
from assay.harness.core.history.plain_rows import RowChecker
from assay.harness.core.interpreter_status import InterpreterStatus
from assay.harness.core.operation import Completed, Effect, Outcome
from assay.harness.core.printable import represent, to_encodable

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
            error = represent(error)
            self._report_exception(completed, TypeError(f"the error of a completion is {error}: it takes text"))
        completion = msgspec.structs.replace(completed.completion, error=to_encodable(error))
        return msgspec.structs.replace(completed, completion=completion)

    def _report_exception(self, completed: Completed, error: Exception) -> None:
        self._status.add_exception(completed.index, completed.process, completed.operation.f, error)

    def _validate(self, effects: Any) -> Sequence[Effect]:
        """Checks the class and every column of each effect. Returns effects with plain values.

        Raises ``TypeError`` or ``ValueError``.
        """
        if not isinstance(effects, Sequence) or isinstance(effects, str):
            raise TypeError(f"effects returned {effects!r}, not a list of Effect")
        checked: list[Effect] = []
        for effect in effects:
            if not isinstance(effect, Effect):
                raise TypeError(f"effects returned {effect!r} in its list, not an Effect")
            row, outcome = astuple(effect), effect.outcome
            if not _is_plain(row):
                effect = _to_plain_effect(effect, row)
            if outcome is not None and type(outcome) is not Outcome and outcome not in _OUTCOMES:
                raise TypeError(
                    f"outcome of an effect of kind {effect.kind!r} is {outcome!r}, none of {', '.join(Outcome)}"
                )
            checked.append(effect)
        return checked


def _to_plain_effect(effect: Effect, row: tuple[Any, ...]) -> Effect:
    conversions = _CHECKER.find_conversions(row, f"an effect of kind {represent(effect.kind)}")
    return msgspec.structs.replace(effect, **conversions)


_COLUMNS: Final = {column.name: column for column in EFFECTS}
_CHECKER: Final = RowChecker(
    [
        # The operation has an outcome for effects that have none.
        _COLUMNS[name]._replace(nullable=_COLUMNS[name].nullable or name == "outcome")
        for name in Effect.__struct_fields__
    ]
)
_is_plain: Final = _CHECKER.is_plain
