"""The rows of a run and their conversion to columns, in plain Python so that Arrow is not loaded.

Rows are kept as they come and transposed in batches, which costs a third of filling columns value by value. JSON is
encoded at once, because an argument may change later. An argument without a JSON form raises its error there, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from assay.harness.core.history.data_sets import DATA_SETS, EFFECTS, NODE_LISTS, OPS, HistoryError
from assay.harness.core.history.plain_rows import RowChecker
from assay.harness.core.operation import Completed, Effect
from assay.harness.core.plain_data import NotPlainError, to_plain_data

OpRow = tuple[Completed, str, str | None]
"""The operation, and its argument and result as JSON."""
EffectRow = tuple[Completed, int, Effect]
"""The operation, the effect's order inside it, and the effect."""

_encode = msgspec.json.Encoder().encode


def to_json(value: Any, what: str) -> str:
    """Encodes ``value`` as JSON text. Raises ``HistoryError`` naming ``what`` if it is not plain data."""
    try:
        return _encode(to_plain_data(value)).decode()
    except RecursionError:
        raise HistoryError(
            f"{what} cannot be written as JSON: it contains itself, or is nested too deep; use plain data"
        ) from None
    except NotPlainError as error:
        raise HistoryError(f"{what} cannot be written as JSON: {error}") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise HistoryError(
            f"{what} cannot be written as JSON ({error}): use numbers, text, lists, dicts or msgspec structs, "
            f"not {type(value).__name__}"
        ) from error


def to_op_row(completed: Completed) -> OpRow:
    argument, result = completed.operation.argument, completed.completion.result
    return (
        completed,
        "null" if argument is None else to_json(argument, f"argument of {completed.operation.f}"),
        None if result is None else to_json(result, f"result of {completed.operation.f}"),
    )


def to_ops_columns(rows: Sequence[OpRow]) -> list[list[Any]]:
    all_completed = [row[0] for row in rows]
    found = _transpose_structs(all_completed)
    found |= _transpose_structs(found["operation"]) | _transpose_structs(found["completion"])
    found |= {"argument": [row[1] for row in rows], "result": [row[2] for row in rows]}
    return [found[name] for name in OPS.names]


def to_effects_columns(rows: Sequence[EffectRow]) -> list[list[Any]]:
    found = _transpose_structs([row[2] for row in rows])
    found |= {
        "op": [row[0].index for row in rows],
        "sub": [row[1] for row in rows],
        "process": [row[0].process for row in rows],
        "call": [row[0].call for row in rows],
        "ret": [row[0].ret for row in rows],
        "outcome": [row[2].outcome or row[0].completion.outcome for row in rows],
        "error": [row[2].error or row[0].completion.error for row in rows],
        "phase": [row[0].operation.phase for row in rows],
    }
    return [found[name] for name in EFFECTS.names]


def _transpose_structs(structs: Sequence[msgspec.Struct]) -> dict[str, list[Any]]:
    """Transposes structs to columns by field. A subclass is accepted because the fields of its base come first."""
    columns = zip(*map(msgspec.structs.astuple, structs), strict=False)
    return dict(zip(structs[0].__struct_fields__, map(list, columns), strict=False))


def transpose_tuples(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Transposes rows that are tuples in column order; there must be at least one row."""
    return [list(column) for column in zip(*rows, strict=True)]


COLUMNS: Final[Mapping[str, Callable[[Sequence[Any]], list[list[Any]]]]] = {
    "effects": to_effects_columns,
    "ops": to_ops_columns,
    "faults": transpose_tuples,
    "events": transpose_tuples,
    "replicas": transpose_tuples,
    "looks": transpose_tuples,
}
"""The conversion of each data set's rows to columns. Effects come first, so that a reader of the growing history never
sees an operation without its effects."""


def _join_numbers(value: Any) -> Any:
    """Joins a list of node numbers to text."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


class History(ABC):
    """The interface that receives a run's rows."""

    @abstractmethod
    def completed(self, completed: Completed, effects: Sequence[Effect] = ()) -> None:
        """Records one operation that has ended, with its effects in their order inside it."""

    @abstractmethod
    def _row(self, name: str, row: tuple[Any, ...]) -> None:
        """Records one row of the data set ``name``, in the order of its columns."""

    def show_unfinished(  # noqa: B027 - a history that no one reads while it grows has nothing to do
        self, unfinished: Callable[[], Iterable[tuple[Completed, Sequence[Effect]]]]
    ) -> None:
        """Lets readers of the growing history see unfinished operations, too.

        ``unfinished`` returns them with their effects, as if their time limits had just passed.
        """

    @abstractmethod
    def digest(self) -> str:
        """Returns the hash of the rows of ops, effects and faults so far; see the module ``digest``."""

    @abstractmethod
    def flush(self) -> None:
        """Makes all rows so far visible to readers, even if the history is never closed."""

    @abstractmethod
    def close(self) -> None:
        """Marks the history as complete. Idempotent."""

    @abstractmethod
    def abandon(self) -> None:
        """Releases a history that will not be completed. Idempotent."""

    def fault(self, *, targets: Sequence[str], detail: Any = None, **columns: Any) -> None:
        """Records one phase of a fault.

        ``columns`` are those of ``FAULTS``; the methods below take those of their data sets. A nullable column may be
        omitted. Each raises ``HistoryError`` for an unknown column, a missing required one, or a value that its column
        does not take.
        """
        encoded = to_json({} if detail is None else detail, f"detail of fault {columns.get('fault')}")
        self._add("faults", {**columns, "targets": to_json(list(targets), "targets"), "detail": encoded})

    def event(self, *, detail: Any = None, **columns: Any) -> None:
        """Records one line of a node's event log. Columns that name nodes may be lists of numbers."""
        encoded = to_json({} if detail is None else detail, f"detail of event {columns.get('event')}")
        lists: dict[str, Any] = {name: _join_numbers(columns.get(name)) for name in NODE_LISTS}
        self._add("events", {**columns, **lists, "detail": encoded})

    def replica(self, **columns: Any) -> None:
        """Records one record found on a node's disk after the run, or the end of its log."""
        self._add("replicas", columns)

    def look(self, **columns: Any) -> None:
        """Records one observation of the system at rest."""
        self._add("looks", columns)

    def _add(self, name: str, columns: Mapping[str, Any]) -> None:
        required, known = _REQUIRED_COLUMNS[name], _COLUMN_NAMES[name]
        if not required <= columns.keys() <= known.keys():
            unknown = ", ".join(sorted(columns.keys() - known.keys()))
            missing = ", ".join(sorted(required - columns.keys()))
            wrong = f"has no column {unknown}" if unknown else f"must have a value for {missing} in every row"
            raise HistoryError(f"{name} {wrong}; it has {', '.join(known)}")
        row, checker = tuple(map(columns.get, known)), _CHECKERS[name]
        if not checker.is_plain(row):
            try:
                conversions = checker.find_conversions(row, f"a row of {name}")
            except (TypeError, ValueError) as error:
                raise HistoryError(str(error)) from error
            row = tuple(map({**columns, **conversions}.get, known))
        self._row(name, row)


_COLUMN_NAMES: Final = {name: dict.fromkeys(columns.names) for name, columns in DATA_SETS.items()}
_REQUIRED_COLUMNS: Final = {
    name: frozenset(column.name for column in columns if not column.nullable) for name, columns in DATA_SETS.items()
}
_CHECKERS: Final = {name: RowChecker(columns) for name, columns in DATA_SETS.items()}
