"""Calls and completions to operations: rows of the ``ops`` table.

An operation that never ends, or ends ``:info``, has no return: nobody knows whether or when it took effect. Only the
result of one that ended ``:ok`` is kept; what others ended with is their ``error``. Stamps must all differ, so an event
that has the time of the one before it counts as one nanosecond later: the order in the file decides.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.history import OPS
from assay.harness.core.operation import Outcome, Phase
from assay.harness.foreign.event import INVOKE, Event
from assay.harness.foreign.keys import CAS, Keyed, Keys
from assay.harness.foreign.malformed import MalformedError, shown
from assay.harness.foreign.plain import text_of, to_json
from assay.harness.foreign.shapes import ANY, Shape

STEP: Final = 1_000_000
"""Nanoseconds from one event to the next where the file tells no time: event 14203 is told as 14.203 s."""
REFUSED: Final = "false"
"""The result of a CAS that took place and found another value than it expected."""
OPEN: Final = -1
"""The return of what has none, in the arrays."""


class Order(enum.StrEnum):
    """By ``:time`` where there is one, or by the order in the file alone."""

    TIME = "time"
    FILE = "file"


class Pairing:
    """Takes events in the order of the file. Raises ``MalformedError`` for one that cannot follow those before it."""

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, Shape] | None,
        model: str,
        keys: Keys,
        order: Order,
        *,
        refusals: bool = False,
    ) -> None:
        self._path = path
        self._shapes = shapes
        self._model = model
        self._keyed = Keyed(path, keys)
        self._order = order
        self._refusals = refusals
        self._timed: bool | None = None
        self._indexed: bool | None = None
        self._stamp = -1
        self._time = 0
        self._last_index = -1
        self._events = 0
        self.nemesis = 0
        self._open: dict[int, tuple[int, Event]] = {}
        self._crashed: dict[int, Event] = {}
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

    def add(self, event: Event) -> None:
        """The next event of the file."""
        position = self._events
        self._events += 1
        if event.process is None:
            self.nemesis += 1
            return
        index = self._indexed_as(event, position)
        stamp = self._stamped(event, position)
        if event.type == INVOKE:
            self._called(event, event.process, index, stamp)
        else:
            self._ended(event, event.process, stamp)

    def table(self) -> pa.Table:
        """All operations so far, in the order of their calls; those still open are of unknown outcome."""
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

    def _called(self, event: Event, process: int, index: int, stamp: int) -> None:
        if process in self._open:
            self._fail(
                event,
                f"process {process} has two open calls: this one, and the one at line "
                f"{self._open[process][1].place.line}, which has not ended",
            )
        if process in self._crashed:
            self._fail(
                event,
                f"process {process} ended :info at line {self._crashed[process].place.line}, so it may still be at "
                "that; whoever goes on after it does so as another process (process + concurrency)",
            )
        shape = self._shape(event)
        key, argument = self._keyed.call(event)
        if not shape.takes(argument):
            self._fail(event, f":{event.f} takes {shape.taken}, not {shown(to_json(argument))}")
        self._open[process] = (len(self._index), event)
        self._index.append(index)
        self._process.append(process)
        self._f.append(self._kept(event.f))
        self._key.append(None if key is None else self._kept(key))
        self._argument.append(self._kept(to_json(argument)))
        self._result.append(None)
        self._call.append(stamp)
        self._ret.append(OPEN)
        self._outcome.append(Outcome.INFO.value)
        self._error.append(None)

    def _ended(self, event: Event, process: int, stamp: int) -> None:
        row, call = self._open.pop(process, (-1, event))
        if row < 0:
            self._fail(event, f"process {process} ends :{event.f}, but has no open call")
        if call.f != event.f:
            self._fail(event, f"process {process} ends :{event.f}, but called :{call.f} at line {call.place.line}")
        value = self._keyed.completion(event, self._key[row])
        if self._refused(event, value, row):
            self._outcome[row], self._result[row], self._ret[row] = Outcome.OK.value, REFUSED, stamp
            return
        self._outcome[row] = Outcome(event.type).value
        if event.type == Outcome.OK:
            shape = self._shape(event)
            if not shape.gives(value):
                self._fail(event, f"the result of :{event.f} is {shape.given}, not {shown(to_json(value))}")
            if shape.repeats and value is not None and shape.takes(value) and to_json(value) != self._argument[row]:
                self._fail(
                    event,
                    f"process {process} ends :{event.f} with {shown(to_json(value))}, but called it with "
                    f"{shown(self._argument[row])} at line {call.place.line}: which of the two it did is not said",
                )
            self._result[row] = None if value is None else self._kept(to_json(value))
        elif event.error is None and value is not None and to_json(value) != self._argument[row]:
            self._error[row] = self._kept(text_of(value))
        if event.error is not None:
            self._error[row] = self._kept(event.error)
        if event.type == Outcome.INFO:
            self._crashed[process] = event
        else:
            self._ret[row] = stamp

    def _refused(self, event: Event, value: Any, row: int) -> bool:
        """Whether a CAS failed because of what it found; any other reason would be told as the error."""
        return (
            self._refusals
            and (event.f, event.type, event.error) == (CAS, Outcome.FAIL, None)
            and (value is None or to_json(value) == self._argument[row])
        )

    def _shape(self, event: Event) -> Shape:
        if self._shapes is None:
            return ANY
        shape = self._shapes.get(event.f)
        if shape is None:
            self._fail(event, f":{event.f} is no operation of {self._model}, which has {', '.join(self._shapes)}")
            raise AssertionError("unreachable")
        return shape

    def _indexed_as(self, event: Event, position: int) -> int:
        has = event.index is not None
        if self._indexed is None:
            self._indexed = has
        if has != self._indexed:
            self._fail(event, "some operations have an :index, and some have none")
        index = position if event.index is None else event.index
        if index <= self._last_index:
            self._fail(event, f":index {index} does not follow :index {self._last_index}")
        self._last_index = index
        return index

    def _stamped(self, event: Event, position: int) -> int:
        if self._order is Order.FILE:
            return position * STEP
        has = event.time is not None
        if self._timed is None:
            self._timed = has
        if has != self._timed:
            self._fail(event, "some operations have a :time, and some have none; --order=file goes without it")
        if event.time is None:
            return position * STEP
        if event.time < self._time:
            self._fail(
                event,
                f"time goes backwards: this is at {event.time} ns, what stands before it at {self._time} ns; "
                "--order=file takes the order in the file, and leaves the times out",
            )
        self._time = event.time
        self._stamp = max(event.time, self._stamp + 1)
        return self._stamp

    def _kept(self, text: str) -> str:
        """One object for equal texts, of which a history has few or each once."""
        return self._texts.setdefault(text, text)

    def _fail(self, event: Event, reason: str) -> None:
        raise MalformedError(self._path, event.place, reason)
