"""The declaration of a plant: a violation that is written into a copy of a history, to see whether the checks find it.

A plant has a list of claims (assertions that the history makes, such as an acknowledged element) and an edit. The edit
is a pure function of the rows of ``effects`` of one object. It keeps the ids, the times and the order of operations,
and changes only values that the system returned. So the copy is a history that a wrong system could have produced.

A claim is *exposed* if the history has an observation that the edit can falsify. If a claim is not exposed, the edit
changes nothing, and no check could have found the violation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from assay.checkers.judging.contract import Contract

Row = Mapping[str, Any]
"""A row of ``effects``, by column."""
Rows = Sequence[Row]
"""Rows of one object, in order of ``op`` and ``sub``."""

T = TypeVar("T")


class ObjectRows(list[Row]):
    """All rows of one object, and a cache of values computed from them, which all plants share."""

    def __init__(self, rows: Iterable[Row], silent: Iterable[Row] = (), *, clients_killed: bool = False) -> None:
        super().__init__(rows)
        self.cache: dict[Callable[[Rows], Any], Any] = {}
        self.silent = list(silent)
        """Rows of ``ops``: operations of unknown outcome and without effects, by processes of this object."""
        self.clients_killed = clients_killed
        """Whether a fault may have ended the processes of clients."""


def compute_once(rows: Rows, function: Callable[[Rows], T]) -> T:
    """Returns ``function(rows)``. For the rows of a whole object it is computed only once."""
    if not isinstance(rows, ObjectRows):
        return function(rows)
    if function not in rows.cache:
        rows.cache[function] = function(rows)
    result: T = rows.cache[function]
    return result


def list_silent(rows: Rows) -> list[Row]:
    """Lists the operations of unknown outcome and without effects, by processes of this object."""
    return rows.silent if isinstance(rows, ObjectRows) else []


def are_clients_killed(rows: Rows) -> bool:
    """Returns whether a fault may have ended the processes of clients."""
    return isinstance(rows, ObjectRows) and rows.clients_killed


NEVER: Final = 2**62
"""The time of a return that is not known."""


@dataclass(frozen=True)
class Claim:
    """An assertion of a history that an edit makes wrong.

    - ``words``: the assertion in words
    - ``exposed``: see the module's docstring
    - ``since``: the edit changes only operations that were called after this time, in nanoseconds
    - ``value``: the value that the assertion is about
    """

    words: str
    exposed: bool = True
    since: int = -1
    value: int | None = None
    row: Row | None = None
    """The row that makes the assertion."""
    other: Row | None = None
    """Another row, which the edit changes or copies."""
    more_values: tuple[int, ...] = ()
    """Further values of the edit. Some are lost together with ``value``, because operations of unknown outcome would
    excuse fewer losses.
    """


def gather_keys(effects: Mapping[str, Rows]) -> Mapping[str, Rows]:
    """Returns the rows by key, because each key is an object of its own."""
    return effects


def select_all(rows: Rows, claim: Claim) -> Rows:
    """Returns all rows, because the check needs the whole object."""
    return rows


def select_two(rows: Rows, claim: Claim) -> Rows:
    """Returns the two rows that the claim names."""
    named = {get_row_id(row): row for row in (claim.row, claim.other) if row is not None}
    return [named[place] for place in sorted(named)]


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A kind of violation that can be written into a history."""

    anomaly: str
    meaning: str
    """The violation in words: a clause without a capital and a full stop."""
    kinds: frozenset[str]
    """Kinds of effects of the objects into which it can be planted."""
    gather: Callable[[Mapping[str, Rows]], Mapping[str, Rows]] = gather_keys
    """Converts the rows by key to the rows by name of an object, for objects that have several keys."""
    find_claims: Callable[[Rows, int], list[Claim]]
    """Lists the claims of one object. The second argument is the end of the last fault that may destroy data
    (``exposure_bound``)."""
    edit: Callable[[Rows, Claim], Rows]
    """Returns the rows with the violation; the same rows if the claim is not exposed."""
    select: Callable[[Rows, Claim], Rows] = select_all
    """Drops rows of the object that are needed neither for the violation nor for its detection."""
    missed: str = ""
    """Why a claim may not be exposed: a clause. Empty: each claim is exposed."""
    separate_times: bool = False
    """Copies must not overlap in time, because the check compares the times of operations on different objects."""
    of_model: bool = False
    """Its rows are operations, and the search of the contract's model judges its copies."""
    requires: Callable[[Contract], bool] = field(default=lambda contract: True)
    """Whether the contract makes the check judge such objects."""


def get_return_time(row: Row) -> int:
    """Returns when the operation of an effect returned; ``NEVER`` if its outcome is unknown."""
    ret = row["ret"]
    return int(ret) if row["outcome"] == "ok" and ret is not None else NEVER


def is_ok(row: Row, *kinds: str) -> bool:
    return row["kind"] in kinds and row["outcome"] == "ok"


def rank_known(rows: Rows, kinds: Iterable[str], column: str) -> tuple[list[Row], list[Row]]:
    """Returns the rows with a value in the column, in the order of their returns. Returns a second list with the row of
    the highest value so far, for each of them.
    """
    known = sorted((row for row in rows if is_ok(row, *kinds) and row[column] is not None), key=get_return_time)
    highest: list[Row] = []
    for row in known:
        highest.append(row if not highest or row[column] > highest[-1][column] else highest[-1])
    return known, highest


def replace_in(rows: Rows, changed: Row, **columns: Any) -> Rows:
    """Returns the rows with new values in these columns of one row."""
    place = get_row_id(changed)
    return [{**row, **columns} if get_row_id(row) == place else row for row in rows]


def append_to(rows: Rows, row: Row, **columns: Any) -> Rows:
    """Returns the rows with a copy of ``row`` at the end of its operation, with these columns changed."""
    last = max(one["sub"] for one in rows if one["op"] == row["op"])
    return sorted([*rows, {**row, "sub": last + 1, **columns}], key=get_row_id)


def get_row_id(row: Row) -> tuple[int, int]:
    """Returns the identity of a row: the number of its operation, and its own number in the operation."""
    return (row["op"], row["sub"])


def find_fresh_value(rows: Rows) -> int:
    """Returns a value that no row has."""
    return 1 + max((abs(row[column] or 0) for row in rows for column in ("value", "expected")), default=0)
