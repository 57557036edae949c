"""History in memory, for the hundreds of runs of a search, whose histories are not kept.

Its digest equals the one of a history in files (module ``digest``), but is computed without Arrow.
"""

import hashlib
from array import array
from collections.abc import Sequence
from typing import Any

from assay.harness.core.history.data_sets import DATA_SETS, DIGESTED, HistoryError
from assay.harness.core.history.rows import COLUMNS, History, to_op_row
from assay.harness.core.operation import Completed, Effect

Columns = dict[str, list[list[Any]]]
"""The columns of each data set as lists of plain values; no columns if it has no rows."""


class HistoryInMemory(History):
    """The rows of one run. :meth:`columns` returns them as columns."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in DATA_SETS}
        self.closed = False
        self._cached: tuple[int, Columns] = (-1, {})
        """The number of rows when columns were last computed, and these columns."""

    def completed(self, completed: Completed, effects: Sequence[Effect] = ()) -> None:
        self._row("ops", to_op_row(completed))
        self._rows["effects"].extend((completed, sub, effect) for sub, effect in enumerate(effects))

    def _row(self, name: str, row: tuple[Any, ...]) -> None:
        if self.closed:
            raise HistoryError("the history in memory is closed")
        self._rows[name].append(row)

    def columns(self) -> Columns:
        """Returns all rows as columns of the format. Raises ``HistoryError`` for a required value that is missing."""
        count = sum(map(len, self._rows.values()))
        if count == self._cached[0]:
            return self._cached[1]
        columns_of = {name: COLUMNS[name](rows) if rows else [] for name, rows in self._rows.items()}
        for name, columns in columns_of.items():
            for column, values in zip(DATA_SETS[name], columns, strict=False):
                if not column.nullable and None in values:
                    raise HistoryError(f"column {column.name} of the history must have a value in every row")
        self._cached = (count, columns_of)
        return columns_of

    def digest(self) -> str:
        return compute_digest(self.columns())

    def flush(self) -> None:
        """Does nothing, because all rows are readable at once."""

    def close(self) -> None:
        self.closed = True

    abandon = close


def compute_digest(columns: Columns) -> str:
    """Returns the hash of the rows of ops, effects and faults; equals that of ``HistoryDigest``."""
    combined = _new_hash()
    for name in DIGESTED:
        part = _new_hash()
        for column, values in zip(DATA_SETS[name], columns[name] or [[]] * len(DATA_SETS[name]), strict=True):
            part.update(_digest_column(column.name, column.type == "string", values))
        combined.update(f"{name}={part.hexdigest()};".encode())
    return combined.hexdigest()


def _digest_column(name: str, text: bool, values: Sequence[Any]) -> bytes:
    """Returns the digest of a column, as ``digest.ColumnDigest`` does. ``text``: whether its values are text."""
    nulls, numbers, text_bytes = _new_hash(), _new_hash(), _new_hash()
    missing = values.count(None)  # mostly all or none
    mixed = 0 < missing < len(values)
    nulls.update(bytes([value is None for value in values]) if mixed else bytes([missing > 0]) * len(values))
    size = 4 if text else 8
    if missing == len(values):
        numbers.update(bytes(size * missing))
    elif text:
        encoded = [b"" if value is None else str(value).encode() for value in values]
        numbers.update(array("i", map(len, encoded)).tobytes())
        text_bytes.update(b"".join(encoded))
    else:
        filled = [0 if value is None else value for value in values] if mixed else values
        try:
            numbers.update(array("q", filled).tobytes())
        except TypeError:  # whole numbers of another type
            numbers.update(array("q", map(int, filled)).tobytes())
    combined = hashlib.blake2b(name.encode(), digest_size=16)
    for one in (nulls, numbers, text_bytes):
        combined.update(one.digest())
    return combined.digest()


def _new_hash() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)
