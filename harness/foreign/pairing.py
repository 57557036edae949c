"""Pairs calls and completions to operations, the rows of the ``ops`` table.

An operation that never ends, or ends ``:info``, has no return, because it is unknown whether and when it took effect.
Only the value of an ``:ok`` completion is a result; the value of any other completion is its ``error``. All timestamps
must differ. So an entry with the same time as the entry before it counts as one nanosecond later.
"""

import enum
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.history import OPS
from assay.harness.core.operation import Outcome, Phase
from assay.harness.foreign.edn import to_json, to_json_array, to_name
from assay.harness.foreign.entry import INVOKE, Entry
from assay.harness.foreign.keys import CAS, KeyMode, KeySplitter
from assay.harness.foreign.nemesis_events import NemesisEvents
from assay.harness.foreign.shapes import ANY, OperationShape
from assay.harness.foreign.source import MalformedError, shorten

STEP: Final = 1_000_000
"""Nanoseconds between two entries of a file without times: entry 14203 is shown as 14.203 s."""
REJECTED: Final = "false"
"""The result of a CAS that took place but found another value than the expected one."""
OPEN: Final = -1
"""Marks a missing return in the arrays."""


class EntryOrder(enum.StrEnum):
    """Order of entries: by ``:time``, if there is one, or by their order in the file."""

    TIME = "time"
    FILE = "file"


class Pairing:
    """Pairs entries, which are added in file order.

    ``add`` raises ``MalformedError`` for an entry that cannot follow the earlier entries.
    """

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, OperationShape] | None,
        model: str,
        keys: KeyMode,
        order: EntryOrder,
        *,
        refusals: bool = False,
    ) -> None:
        self._path = path
        self._shapes = shapes
        self._model = model
        self._splitter = KeySplitter(path, keys)
        self._order = order
        self._refusals = refusals
        self._timed: bool | None = None
        self._indexed: bool | None = None
        self._stamp = -1
        self._time = 0
        self._last_index = -1
        self._entries = 0
        self.nemesis = NemesisEvents()
        self._open: dict[int, tuple[int, Entry]] = {}
        self._crashed: dict[int, Entry] = {}
        self._index, self._call, self._ret, self._process = array("q"), array("q"), array("q"), array("q")
        self._f: list[str] = []
        self._key: list[str | None] = []
        self._argument: list[str] = []
        self._result: list[str | None] = []
        self._outcome: list[str] = []
        self._error: list[str | None] = []
        self._texts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._index)

    def add(self, entry: Entry) -> None:
        """Adds the next entry of the file."""
        position = self._entries
        self._entries += 1
        if entry.process is None:
            time = position * STEP if entry.time is None or self._order is EntryOrder.FILE else entry.time
            self.nemesis.add(entry.f, time)
            return
        index = self._check_index(entry, position)
        stamp = self._assign_time(entry, position)
        if entry.type == INVOKE:
            self._add_call(entry, entry.process, index, stamp)
        else:
            self._add_completion(entry, entry.process, stamp)

    def make_table(self) -> pa.Table:
        """Returns all operations so far, in the order of their calls. Without a completion, the outcome is info."""
        ret = pa.array(self._ret, pa.int64())
        process = pa.array(self._process, pa.int32())
        columns = {
            "index": pa.array(self._index, pa.int64()),
            "process": process,
            "worker": process.cast(pa.string()),
            "f": pa.array(self._f, pa.string()),
            "key": pa.array(self._key, pa.string()),
            "argument": pa.array(self._argument, pa.string()),
            "result": pa.array(self._result, pa.string()),
            "call": pa.array(self._call, pa.int64()),
            "ret": pc.if_else(pc.equal(ret, OPEN), pa.scalar(None, pa.int64()), ret),
            "outcome": pa.array(self._outcome, pa.string()),
            "error": pa.array(self._error, pa.string()),
            "phase": pa.repeat(pa.scalar(Phase.MAIN.value), len(self)),
            "scheduled": pa.nulls(len(self), pa.int64()),
        }
        return pa.Table.from_arrays([columns[field.name] for field in OPS], schema=OPS)

    def _add_call(self, entry: Entry, process: int, index: int, stamp: int) -> None:
        if process in self._open:
            self._fail(
                entry,
                f"process {process} has two open calls: this one, and the one at line "
                f"{self._open[process][1].place.line}, which has not ended",
            )
        if process in self._crashed:
            self._fail(
                entry,
                f"process {process} ended :info at line {self._crashed[process].place.line}, so that operation may "
                "still go on; the worker must continue as another process (process + concurrency)",
            )
        shape = self._find_shape(entry)
        key, argument = self._splitter.split_call(entry)
        if not shape.argument_fits(argument):
            self._fail(entry, f":{entry.f} takes {shape.argument_text}, not {shorten(to_json(argument))}")
        self._open[process] = (len(self._index), entry)
        self._index.append(index)
        self._process.append(process)
        self._f.append(self._intern(entry.f))
        self._key.append(None if key is None else self._intern(key))
        self._argument.append(self._intern(to_json(argument)))
        self._result.append(None)
        self._call.append(stamp)
        self._ret.append(OPEN)
        self._outcome.append(Outcome.INFO.value)
        self._error.append(None)

    def _add_completion(self, entry: Entry, process: int, stamp: int) -> None:
        row, call = self._open.pop(process, (-1, entry))
        if row < 0:
            self._fail(entry, f"process {process} ends :{entry.f}, but has no open call")
        if call.f != entry.f:
            self._fail(entry, f"process {process} ends :{entry.f}, but called :{call.f} at line {call.place.line}")
        value = self._splitter.split_completion(entry, self._key[row])
        if self._is_failed_cas(entry, value, row):
            self._outcome[row], self._result[row], self._ret[row] = Outcome.OK.value, REJECTED, stamp
            return
        self._outcome[row] = Outcome(entry.type).value
        if entry.type == Outcome.OK:
            shape = self._find_shape(entry)
            if not shape.result_fits(value):
                self._fail(entry, f"the result of :{entry.f} is {shape.result_text}, not {shorten(to_json(value))}")
            if (
                shape.repeats
                and value is not None
                and shape.argument_fits(value)
                and to_json(value) != self._argument[row]
            ):
                self._fail(
                    entry,
                    f"process {process} ends :{entry.f} with {shorten(to_json(value))}, but called it with "
                    f"{shorten(self._argument[row])} at line {call.place.line}: which of them took effect is unknown",
                )
            text = to_json_array(value) if shape.returns_elements else to_json(value)
            self._result[row] = None if value is None else self._intern(text)
        elif entry.error is None and value is not None and to_json(value) != self._argument[row]:
            self._error[row] = self._intern(to_name(value))
        if entry.error is not None:
            self._error[row] = self._intern(entry.error)
        if entry.type == Outcome.INFO:
            self._crashed[process] = entry
        else:
            self._ret[row] = stamp

    def _is_failed_cas(self, entry: Entry, value: Any, row: int) -> bool:
        """Returns whether a CAS failed because it found another value. For any other reason there would be an error."""
        return (
            self._refusals
            and (entry.f, entry.type, entry.error) == (CAS, Outcome.FAIL, None)
            and (value is None or to_json(value) == self._argument[row])
        )

    def _find_shape(self, entry: Entry) -> OperationShape:
        if self._shapes is None:
            return ANY
        shape = self._shapes.get(entry.f)
        if shape is None:
            self._fail(entry, f":{entry.f} is no operation of {self._model}, which has {', '.join(self._shapes)}")
            raise AssertionError("unreachable")
        return shape

    def _check_index(self, entry: Entry, position: int) -> int:
        has_index = entry.index is not None
        if self._indexed is None:
            self._indexed = has_index
        if has_index != self._indexed:
            self._fail(entry, "some operations have an :index, and some have none")
        index = position if entry.index is None else entry.index
        if index <= self._last_index:
            self._fail(entry, f":index {index} does not follow :index {self._last_index}")
        self._last_index = index
        return index

    def _assign_time(self, entry: Entry, position: int) -> int:
        if self._order is EntryOrder.FILE:
            return position * STEP
        has_time = entry.time is not None
        if self._timed is None:
            self._timed = has_time
        if has_time != self._timed:
            self._fail(entry, "some operations have a :time, and some have none; --order=file ignores it")
        if entry.time is None:
            return position * STEP
        if entry.time < self._time:
            self._fail(
                entry,
                f"time goes backwards: this entry is at {entry.time} ns, the one before it at {self._time} ns; "
                "--order=file uses the order in the file, without times",
            )
        self._time = entry.time
        self._stamp = max(entry.time, self._stamp + 1)
        return self._stamp

    def _intern(self, text: str) -> str:
        """Returns one object for all equal texts, which saves memory."""
        return self._texts.setdefault(text, text)

    def _fail(self, entry: Entry, reason: str) -> None:
        raise MalformedError(self._path, entry.place, reason)
