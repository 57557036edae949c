"""What comes to pass in a run, as rows and as columns of them, in plain Python: Arrow is not loaded for it.

Rows are kept as they come and turned over column by column, which costs a third of filling columns one value at a
time. JSON is made at once: an argument may change after it was recorded, and one that has no JSON form must fail
where it came from.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from assay.harness.core.history.data_sets import DATA_SETS, EFFECTS, NODE_LISTS, OPS, HistoryError
from assay.harness.core.operation import Completed, Effect

OpRow = tuple[Completed, str, str | None]
"""The operation, its argument and its result as JSON."""
EffectRow = tuple[Completed, int, Effect]
"""The operation, the effect's order inside it, the effect."""

_encode = msgspec.json.Encoder().encode


def to_json(value: Any, what: str) -> str:
    """``value`` as JSON text. Raises ``HistoryError`` naming ``what`` when it is not plain data."""
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise HistoryError(
            f"{what} cannot be written as JSON ({error}): use numbers, text, lists, dicts or msgspec structs, "
            f"not {type(value).__name__}"
        ) from error


def op_row(completed: Completed) -> OpRow:
    argument, result = completed.operation.argument, completed.completion.result
    return (
        completed,
        "null" if argument is None else to_json(argument, f"argument of {completed.operation.f}"),
        None if result is None else to_json(result, f"result of {completed.operation.f}"),
    )


def ops_columns(rows: Sequence[OpRow]) -> list[list[Any]]:
    all_completed = [row[0] for row in rows]
    found = _columns(all_completed)
    found |= _columns(found["operation"]) | _columns(found["completion"])
    found |= {"argument": [row[1] for row in rows], "result": [row[2] for row in rows]}
    return [found[name] for name in OPS.names]


def effects_columns(rows: Sequence[EffectRow]) -> list[list[Any]]:
    found = _columns([row[2] for row in rows])
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


def _columns(structs: Sequence[msgspec.Struct]) -> dict[str, list[Any]]:
    """Field by field. A subclass has those of its base first, so one among them does no harm."""
    columns = zip(*map(msgspec.structs.astuple, structs), strict=False)
    return dict(zip(structs[0].__struct_fields__, map(list, columns), strict=False))


def plain_columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Of rows that are tuples in the order of their columns; there is one at least."""
    return [list(column) for column in zip(*rows, strict=True)]


COLUMNS: Final[Mapping[str, Callable[[Sequence[Any]], list[list[Any]]]]] = {
    "effects": effects_columns,
    "ops": ops_columns,
    "faults": plain_columns,
    "events": plain_columns,
    "replicas": plain_columns,
    "looks": plain_columns,
}
"""Rows of a data set to its columns. Effects come first: they are sealed before the operations that they belong to."""


def _listed(value: Any) -> Any:
    """A list of nodes' numbers as text."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


class History(ABC):
    """Where a run's rows go."""

    @abstractmethod
    def completed(self, completed: Completed, effects: Sequence[Effect] = ()) -> None:
        """One operation that has ended, with its effects in their order inside it."""

    @abstractmethod
    def _row(self, name: str, row: tuple[Any, ...]) -> None:
        """One row of the data set ``name``, in the order of its columns."""

    def grows_with(  # noqa: B027 - a history that no one reads while it grows has nothing to do
        self, under_way: Callable[[], Iterable[tuple[Completed, Sequence[Effect]]]]
    ) -> None:
        """Who reads the history while it is written finds ``under_way`` there, too: the operations that have not ended,
        as if they had just been given up, with their effects.
        """

    @abstractmethod
    def digest(self) -> str:
        """The hash of the canonical rows of ops, effects and faults so far; see ``digest``."""

    @abstractmethod
    def flush(self) -> None:
        """From now on all rows so far are there for who reads the history, even if it never comes to its end."""

    @abstractmethod
    def close(self) -> None:
        """There will be no more rows: the history is complete. Idempotent."""

    @abstractmethod
    def abandon(self) -> None:
        """Lets go of a history that has no end. Idempotent."""

    def fault(self, *, targets: Sequence[str], detail: Any = None, **columns: Any) -> None:
        """One step of a fault: ``phase`` is intended, injected, healed, recovered or failed; ``time`` a stamp.

        ``columns``: those of ``FAULTS``, as for each of the following methods those of its data set: null where it may
        be and is not given. Each raises ``HistoryError`` for a column that there is not, or that must be there.
        """
        about = to_json({} if detail is None else detail, f"detail of fault {columns.get('fault')}")
        self._add("faults", {**columns, "targets": to_json(list(targets), "targets"), "detail": about})

    def event(self, *, detail: Any = None, **columns: Any) -> None:
        """One line of a node's event log; ``seq`` is its order on that node and incarnation. Columns that name nodes
        may be lists of numbers.
        """
        about = to_json({} if detail is None else detail, f"detail of event {columns.get('event')}")
        lists: dict[str, Any] = {name: _listed(columns.get(name)) for name in NODE_LISTS}
        self._add("events", {**columns, **lists, "detail": about})

    def replica(self, **columns: Any) -> None:
        """One record as found on a node's disk after the run, or the end of its log."""
        self._add("replicas", columns)

    def look(self, **columns: Any) -> None:
        """One thing seen in a look at the system at rest."""
        self._add("looks", columns)

    def _add(self, name: str, columns: Mapping[str, Any]) -> None:
        required, known = _REQUIRED[name], _KNOWN[name]
        if not required <= columns.keys() <= known.keys():
            unknown = ", ".join(sorted(columns.keys() - known.keys()))
            missing = ", ".join(sorted(required - columns.keys()))
            wrong = f"has no column {unknown}" if unknown else f"must have a value for {missing} in every row"
            raise HistoryError(f"{name} {wrong}; it has {', '.join(known)}")
        self._row(name, tuple(map(columns.get, known)))


_KNOWN: Final = {name: dict.fromkeys(columns.names) for name, columns in DATA_SETS.items()}
"""The names of the columns, in order."""
_REQUIRED: Final = {
    name: frozenset(column.name for column in columns if not column.nullable) for name, columns in DATA_SETS.items()
}
