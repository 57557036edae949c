"""Tiles: a few thousand operations that are made once and copied many times, each time with other numbers.

1. A number in a tile is relative to a counter. It is an int64 that contains the counter: ``counter << 40 | distance``.
   Numbers of counter 0 are absolute. Texts (keys, arguments, results) contain the same numbers in decimal.
2. ``Bases`` has the values of all counters before a copy. There are counters for operations, time, the process of each
   client and the number of each key. The object itself has counters in each key, for example the end of a log.
3. A copy adds the value of the counter to each distance. Columns without relative numbers are shared by all copies.
4. After a copy, the counters increase by the numbers that the tile has used. So an object continues where the previous
   copy ended, and no two copies are equal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from assay.harness.core.history import SCHEMAS
from assay.harness.core.history.rows import COLUMNS
from assay.harness.core.history.schema import to_batch
from assay.harness.synthetic.plan import Plan

Ints: TypeAlias = NDArray[np.int64]

ABSOLUTE, OPERATION, TIME, PIECE, UNIQUE, EVENT = range(6)
"""Counters of the whole history.

- ``PIECE``: the number of tiles so far, plus 1.
- ``UNIQUE``: numbers that occur only once.
- ``EVENT``: the order of lines in a node's event log.
"""
FIRST_UNIQUE: Final = 1 << 41
"""Value of ``UNIQUE`` at the begin of the history, above all other numbers."""
NUMBERS_PER_SLOT: Final = 8
"""How many numbers of ``UNIQUE`` and of ``EVENT`` each slot has."""

_STRIDE: Final = 7919
"""Distance by which keys are rotated from piece to piece."""

_SHIFT: Final = 40
_OPTIONAL: Final = 1 << _SHIFT - 1
"""A bit of a relative number: if the counter is 0 in a copy, the number is null there."""
_DISTANCE: Final = _OPTIONAL - 1
_WIDE: Final = {pa.int32(): pa.int64()}
"""Column types that are too small for relative numbers, with the type to use instead."""
_RELATIVE: Final = re.compile(r"(\d{13,})")
"""A relative number in a text. All absolute numbers are below 2**40."""


def relative(counter: int, distance: int = 0, *, optional: bool = False) -> int:
    """Returns the number that is the value of a counter plus ``distance``. ``optional``: null if the counter is 0."""
    return counter << _SHIFT | (_OPTIONAL if optional else 0) | distance


@dataclass(frozen=True)
class Layout:
    """The indexes of a plan's counters. Clients and keys of a tile are numbered from 0."""

    clients: int
    keys: int

    def process_counter(self, client: int) -> int:
        """Returns the counter of a client's process."""
        return EVENT + 1 + client

    def client_counter(self, client: int) -> int:
        """Returns the counter of the number that a client of the tile has in a copy."""
        return EVENT + 1 + self.clients + client

    def key_counter(self, key: int) -> int:
        """Returns the counter of the number that a key of the tile has in a copy."""
        return EVENT + 1 + 2 * self.clients + key

    def object_counter(self, key: int, which: int = 0) -> int:
        """Returns one of the object's own counters in a key of the tile."""
        return self.key_counter(key) + (1 + which) * self.keys


class _Numbers:
    """An int64 column with relative numbers."""

    def __init__(self, column: pa.Array) -> None:
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        # A negative number is absolute.
        self._counter = np.maximum(numbers, 0) >> _SHIFT
        self._distance = np.where(numbers < 0, numbers, numbers & _DISTANCE)
        self._null = column.is_null().to_numpy(zero_copy_only=False)
        self._optional = (numbers > 0) & (numbers & _OPTIONAL != 0)
        self._nullable = bool(self._null.any() or self._optional.any())
        self.relative = bool(self._counter.any())

    def copy(self, bases: Ints) -> pa.Array:
        counters = bases[self._counter]
        mask = self._null | (self._optional & (counters == 0)) if self._nullable else None
        return pa.array(counters + self._distance, pa.int64(), mask=mask)


class _Texts:
    """A text column with relative numbers. Each distinct text is converted once per copy."""

    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        self._rows = encoded.indices
        # Literals and numbers alternate; each text begins and ends with a literal, which may be empty.
        pieces = [_RELATIVE.split(text) for text in encoded.dictionary.to_pylist()]
        self._before = pa.array([part for text in pieces for part in text[:-1:2]], pa.string())
        self._numbers = _Numbers(pa.array([int(part) for text in pieces for part in text[1::2]], pa.int64()))
        self._last = pa.array([text[-1] for text in pieces], pa.string())
        self._offsets = pa.array(np.cumsum([0, *(len(text) // 2 for text in pieces)]), pa.int32())
        self.relative = len(self._before) > 0

    def copy(self, bases: Ints) -> pa.Array:
        numbers = self._numbers.copy(bases).cast(pa.string()).fill_null("null")
        parts = pc.binary_join_element_wise(self._before, numbers, "")
        texts = pc.binary_join(pa.ListArray.from_arrays(self._offsets, parts), "")
        return pc.binary_join_element_wise(texts, self._last, "").take(self._rows)


def _find_relative(column: pa.Array) -> _Numbers | _Texts | None:
    """Returns the column in a form that can be copied with other numbers; None if it has no relative numbers."""
    if column.null_count == len(column) or column.type not in (pa.int64(), pa.string()):
        return None
    converted = _Numbers(column) if column.type == pa.int64() else _Texts(column)
    return converted if converted.relative else None


class TileBatch:
    """The rows of one data set in a tile."""

    def __init__(self, name: str, rows: Sequence[Any]) -> None:
        """``rows``: in the form that ``COLUMNS`` converts."""
        self.name = name
        self._schema = SCHEMAS[name]
        wide = pa.schema([field.with_type(_WIDE.get(field.type, field.type)) for field in self._schema])
        self._columns: list[pa.Array] = []
        """All columns. Columns without relative numbers are used as they are."""
        self._changing: dict[int, _Numbers | _Texts] = {}
        """By index, the columns with relative numbers."""
        for column, kind in zip(to_batch(wide, COLUMNS[name](rows)).columns, self._schema.types, strict=True):
            changing = _find_relative(column)
            if changing is not None:
                self._changing[len(self._columns)] = changing
            self._columns.append(column.cast(kind) if changing is None else column)

    def copy(self, bases: Ints) -> pa.RecordBatch:
        columns = list(self._columns)
        for index, column in self._changing.items():
            columns[index] = column.copy(bases).cast(self._schema.types[index])
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Operations with their effects, and how they move the counters."""

    slots: int
    operations: int
    batches: Sequence[TileBatch]
    drain: Sequence[TileBatch] = ()
    """The drain of the records that this tile has appended."""
    drain_operations: int = 0
    """Number of operations in ``drain``."""
    extra: int = 0
    """Nanoseconds by which the tile is longer than its slots."""
    increments: Mapping[int, int] = field(default_factory=dict)
    """By counter of an object, the increase after a copy."""
    counters_afterwards: Mapping[int, int] = field(default_factory=dict)
    """By counter of an object, its new value after a copy."""
    timeouts: Sequence[int] = ()
    """Number of timeouts of each client. After each timeout the client continues as a new process."""


class Bases:
    """The counters of a history while its tiles are copied."""

    def __init__(
        self, plan: Plan, width: int, initial_counts: Sequence[int], rotated_keys: int, key_spacing: int
    ) -> None:
        """Sets all counters to their initial values.

        - ``initial_counts``: initial value of each counter of a key
        - ``rotated_keys``: the number of keys, from 0, that are rotated from piece to piece by multiples of
          ``key_spacing``, so that each piece begins with other keys
        """
        self._layout, self._width, self._rotated_keys = Layout(plan.clients, plan.keys), width, rotated_keys
        self._stride = _STRIDE * key_spacing
        self._processes = np.arange(plan.clients, dtype=np.int64)
        self.counts: Ints = np.repeat(np.array([initial_counts], dtype=np.int64).T, plan.keys, axis=1)
        self._slot = self._operation = self._extra = 0
        self._piece = 1

    def get_values(self, first: int | None = None) -> Ints:
        """Returns the values of all counters. ``first``: the first key of a tile outside the main phase."""
        names = np.arange(self._layout.keys, dtype=np.int64)
        if first is not None:
            names = np.roll(names, -first)
        elif self._rotated_keys:
            names[: self._rotated_keys] = np.roll(
                names[: self._rotated_keys], -(self._piece * self._stride % self._rotated_keys)
            )
        clients = np.roll(np.arange(self._layout.clients), -self._slot)
        unique = NUMBERS_PER_SLOT * self._slot
        history = [
            0, self._operation, self._slot * self._width + self._extra, self._piece, FIRST_UNIQUE + unique, unique,
        ]  # fmt: skip
        return np.concatenate([history, self._processes[clients], clients, names, self.counts[:, names].reshape(-1)])

    def move(self, tile: Tile, bases: Ints) -> None:
        """Moves the counters of clients and keys past a copy. ``bases``: the counter values of the copy."""
        if len(tile.timeouts):
            timeouts = np.array(tile.timeouts, dtype=np.int64)
            self._processes += self._layout.clients * np.roll(timeouts, self._slot)
        for counter, amount in tile.increments.items():
            self.counts[self._find(counter, bases)] += amount
        for counter, number in tile.counters_afterwards.items():
            self.counts[self._find(counter, bases)] = resolve(number, bases)
        self._piece += 1

    def skip(self, slots: int, operations: int = 0, extra: int = 0) -> None:
        """Increases the counters of slots, operations and time."""
        self._slot += slots
        self._operation += operations
        self._extra += extra

    def _find(self, counter: int, bases: Ints) -> tuple[int, int]:
        """Returns the indexes of a counter in ``counts``."""
        which, key = divmod(counter - self._layout.object_counter(0), self._layout.keys)
        return which, int(bases[self._layout.key_counter(key)])


def resolve(number: int, bases: Ints) -> int:
    """Returns the value of a relative number in a copy. ``bases``: the counter values of the copy."""
    return number if number < 0 else int(bases[number >> _SHIFT]) + (number & _DISTANCE)


def resolve_text(text: str, bases: Ints) -> str:
    """Returns a text with its relative numbers replaced by their values in a copy."""
    return _RELATIVE.sub(lambda found: str(resolve(int(found[1]), bases)), text)
