"""Pairs calls and completions to operations, the rows of the ``ops`` table.

An operation that never ends, or ends ``:info``, has no return, because it is unknown whether and when it took effect.
Only the value of an ``:ok`` completion is a result; the value of any other completion is its ``error``. With
``all_reads``, the value of any other completion is also a result if it fits the call. All timestamps must differ. So an
entry with the same time as the entry before it counts as one nanosecond later.

Entries without a ``:process`` come in pairs: a call, then its completion. Each such operation counts as a process of
its own, because it is unknown which client made it. A process may go on after an operation of unknown outcome, although
that operation may still take effect. ``separate_processes`` gives the later operations another process.
"""

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from assay.harness.core.history import OPS
from assay.harness.core.operation import Outcome, Phase
from assay.harness.foreign.answers import ContradictoryAnswer, allow_any
from assay.harness.foreign.edn import to_edn, to_json, to_json_array, to_name, to_source
from assay.harness.foreign.entry import INVOKE, MAX_PROCESSES, Entry, require_readable
from assay.harness.foreign.entry_order import ENTRY_INTERVAL, MISSING, ChosenOrder, EntryOrder, EntryTimes
from assay.harness.foreign.keys import CAS, KeyMode, KeySplitter
from assay.harness.foreign.nemesis_events import ForeignFault, NemesisEvents
from assay.harness.foreign.shapes import ANY, OperationShape
from assay.harness.foreign.source import MalformedError, TextPosition

REJECTED: Final = "false"
"""The result of a CAS that took place but found another value than the expected one."""
UNNAMED: Final = "unnamed"
"""The worker of operations without a ``:process``."""
LONGEST_ANSWER: Final = 200
"""Maximum characters of a call or an answer in a finding."""


class _OpenCall(NamedTuple):
    """A call that has not ended. ``argument`` is the value without its key."""

    row: int
    f: str
    place: TextPosition
    argument: Any


@dataclass(frozen=True, slots=True)
class _Contradiction:
    """An answer that contradicts its call. ``row``: of the operation; ``position``: of the answer among the entries."""

    row: int
    position: int
    called: str
    answered: str


class Pairing:
    """Pairs entries, which are added in file order.

    ``read_history`` explains the options. ``add`` raises ``MalformedError`` for an entry that cannot follow the earlier
    entries. After the last entry, call ``settle_order`` before any other method, because it decides the times.
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
        all_reads: bool = False,
        only_operation: str | None = None,
        prefers_values: bool = False,
    ) -> None:
        self._path = path
        self._shapes = shapes
        self._model = model
        self._splitter = KeySplitter(path, keys, self._may_be_pair, self._fits if prefers_values else None)
        self._refusals = refusals
        self._all_reads = all_reads
        self._only_operation = only_operation
        self._times = EntryTimes(path, order)
        self._indexed: bool | None = None
        """Whether operations have an ``:index``; None before the first one."""
        self._last_index = -1
        self._entries = 0
        self.continued = 0
        """The number of operations in a process that had an operation of unknown outcome before."""
        self._events: list[tuple[str, int, int | None]] = []
        """Name, position and time of each event of the nemesis."""
        self._by_time = False
        self._stamps: Sequence[int] = ()
        """The time of each entry, by its position; empty until ``settle_order``."""
        self._open: dict[int | None, _OpenCall] = {}
        self._crashed: set[int] = set()
        """Processes that have had an operation of unknown outcome."""
        self.unnamed = 0
        """The number of operations without a process."""
        self.answered = 0
        """The number of operations that ended ok."""
        self.comparable = 0
        """The number of answered operations whose form says what the answer must repeat."""
        self._contradictions: list[_Contradiction] = []
        self._index, self._call, self._ret, self._process = array("q"), array("q"), array("q"), array("q")
        """By row, as all lists below. ``_call`` and ``_ret`` hold positions of entries, whose times are ``_stamps``."""
        self._worker: list[str] = []
        self._f: list[str] = []
        self._key: list[str | None] = []
        self._argument: list[str] = []
        self._result: list[str | None] = []
        self._outcome: list[str] = []
        self._phase: list[str] = []
        self._error: list[str | None] = []
        self._texts: dict[str, str] = {}
        self.fields: dict[int, dict[str, Any]] = {}
        """Further fields of completions as plain JSON, by the index of the operation."""

    def __len__(self) -> int:
        return len(self._index)

    @property
    def guessed_keys(self) -> int:
        """The number of keys, if values without a tag were taken as ``[k v]`` without an option; otherwise 0."""
        return self._splitter.guessed_keys

    @property
    def nemesis_count(self) -> int:
        return len(self._events)

    def add(self, entry: Entry) -> None:
        """Adds the next entry of the file."""
        position = self._entries
        self._entries += 1
        self._times.add(entry.place, entry.process, entry.time, nemesis=entry.nemesis)
        if entry.nemesis:
            self._events.append((entry.f or "event", position, entry.time))
            return
        index = self._check_index(entry, position)
        f = entry.f or self._only_operation
        if f is None:
            self._fail(entry, f"this operation has no :f; {self._list_operations()}")
        if entry.type == INVOKE:
            self._add_call(entry, f, index, position)
        else:
            self._add_completion(entry, f, position)

    def settle_order(self) -> ChosenOrder:
        """Decides the order of all entries, which determines their stamps."""
        self._stamps, order, self._by_time = self._times.choose_order(
            self._call, self._ret, self._process, numbered=self._indexed is True
        )
        return order

    @property
    def is_timed(self) -> bool:
        """Whether the stamps are the times of the file."""
        return self._by_time

    def list_faults(self) -> tuple[ForeignFault, ...]:
        """Returns the faults that the events of the nemesis begin and end."""
        nemesis = NemesisEvents()
        for f, position, time in self._events:
            nemesis.add(f, time if self._by_time and time is not None else position * ENTRY_INTERVAL)
        return nemesis.list_faults()

    def list_answers(self) -> tuple[ContradictoryAnswer, ...]:
        """Returns the answers that contradict their calls."""
        processes = self._name_processes()
        return tuple(
            ContradictoryAnswer(
                index=self._index[one.row],
                process=processes[one.row],
                f=self._f[one.row],
                key=self._key[one.row],
                called=one.called,
                answered=one.answered,
                call=self._stamps[self._call[one.row]],
                ret=self._stamps[one.position],
            )
            for one in self._contradictions
        )

    def make_table(self) -> pa.Table:
        """Returns all operations so far, in the order of their calls. Without a completion, the outcome is info."""
        stamps = self._stamps
        ret = pa.array([MISSING if one == MISSING else stamps[one] for one in self._ret], pa.int64())
        columns = {
            "index": pa.array(self._index, pa.int64()),
            "process": pa.array(self._name_processes(), pa.int32()),
            "worker": pa.array(self._worker, pa.string()),
            "f": pa.array(self._f, pa.string()),
            "key": pa.array(self._key, pa.string()),
            "argument": pa.array(self._argument, pa.string()),
            "result": pa.array(self._result, pa.string()),
            "call": pa.array([stamps[one] for one in self._call], pa.int64()),
            "ret": pc.if_else(pc.equal(ret, MISSING), pa.scalar(None, pa.int64()), ret),
            "outcome": pa.array(self._outcome, pa.string()),
            "error": pa.array(self._error, pa.string()),
            "phase": pa.array(self._phase, pa.string()),
            "scheduled": pa.nulls(len(self), pa.int64()),
        }
        return pa.Table.from_arrays([columns[field.name] for field in OPS], schema=OPS)

    def _name_processes(self) -> list[int]:
        """Returns the process of each row. Operations without a process get unused numbers."""
        unused = iterate_unused(self._process)
        return [process if process != MISSING else next(unused) for process in self._process]

    def _add_call(self, entry: Entry, f: str, index: int, position: int) -> None:
        process = entry.process
        if (before := self._open.get(process)) is not None:
            who = "entries without :process have" if process is None else f"process {process} has"
            self._fail(
                entry,
                f"{who} two open calls: this one, and the one at line {before.place.line}, which has not ended; "
                "if it never ended, add its completion with :type :info",
            )
        self.continued += process in self._crashed
        self.unnamed += process is None
        shape = self._find_shape(entry, f)
        if entry.unreadable is not None and not shape.ignores_values:
            require_readable(self._path, entry.unreadable, f"the value of :{f}")
        key, argument = self._splitter.split_call(entry, f)
        if not shape.argument_fits(argument):
            self._fail(
                entry,
                f":{f} takes {shape.argument_text}, not {to_source(argument)}; repair it, or name the model or the "
                "workload of the file",
            )
        self._open[process] = _OpenCall(len(self._index), f, entry.place, argument)
        self._index.append(index)
        self._process.append(MISSING if process is None else process)
        self._worker.append(UNNAMED if process is None else self._intern(str(process)))
        self._f.append(self._intern(f))
        self._key.append(None if key is None else self._intern(key))
        self._argument.append(self._intern(to_json(argument)))
        self._result.append(None)
        self._call.append(position)
        self._ret.append(MISSING)
        self._outcome.append(Outcome.INFO.value)
        self._error.append(None)
        self._phase.append((Phase.DRAIN if entry.final else Phase.MAIN).value)

    def _add_completion(self, entry: Entry, f: str, position: int) -> None:
        process = entry.process
        who = "an entry without :process" if process is None else f"process {process}"
        call = self._open.pop(process, None)
        if call is None:
            self._fail(
                entry,
                f"{who} ends :{f}, but has no open call; a completion follows the entry of its call, :type :invoke",
            )
        if call.f != f:
            self._fail(entry, f"{who} ends :{f}, but called :{call.f} at line {call.place.line}; repair one of them")
        row = call.row
        is_unreadable = entry.type == Outcome.OK and entry.unreadable is not None
        if is_unreadable and not self._find_shape(entry, f).ignores_answers:
            require_readable(self._path, entry.unreadable, f"the result of :{f}")
        value = self._splitter.split_completion(entry, self._key[row])
        if is_unreadable:
            value = None
        if self._is_failed_cas(entry, f, value, row):
            self._outcome[row], self._result[row], self._ret[row] = Outcome.OK.value, REJECTED, position
            return
        self._outcome[row] = Outcome(entry.type).value
        if entry.type == Outcome.OK:
            shape = self._find_shape(entry, f)
            if value is None and shape.nil_means_argument(call.argument):
                value = call.argument
            fits, comparable = shape.result_fits(value), shape.allows is not allow_any
            if not fits and not comparable:
                self._fail(
                    entry,
                    f"the result of :{f} is {shape.result_text}, not {to_source(value)}; repair it, or end the "
                    "operation with :type :info if its result is unknown",
                )
            self.answered += 1
            self.comparable += comparable
            if not fits or not shape.allows(call.argument, value):
                self._contradict(call, value, position)
                if process is not None:
                    self._crashed.add(process)
                return
            text = to_json_array(value) if shape.returns_elements else to_json(value)
            self._result[row] = None if value is None else self._intern(text)
        else:
            self._keep_value(entry, f, call, value)
        if entry.final:  # marked as one of the last reads
            self._phase[row] = Phase.DRAIN.value
        if entry.more is not None:  # further fields, which checks of workloads read
            self.fields[self._index[row]] = {name: json.loads(to_json(field)) for name, field in entry.more.items()}
        if entry.error is not None:
            self._error[row] = self._intern(entry.error)
        if entry.type != Outcome.INFO:
            self._ret[row] = position
        elif process is not None:
            self._crashed.add(process)

    def _keep_value(self, entry: Entry, f: str, call: _OpenCall, value: Any) -> None:
        """Keeps the value of an operation that did not end ok: as its result if a check reads it, and as its error.

        An ``:error`` of its own takes precedence.
        """
        if value is None:
            return
        shape, differs = self._find_shape(entry, f), to_json(value) != self._argument[call.row]
        is_read = self._all_reads or (shape.keeps_results and differs)
        if is_read and entry.unreadable is None and shape.result_fits(value) and shape.allows(call.argument, value):
            self._result[call.row] = self._intern(to_json(value))
            differs = differs and not shape.keeps_results
        if differs and entry.error is None:
            self._error[call.row] = self._intern(to_name(value))

    def _fits(self, f: str, value: Any) -> bool:
        """Returns whether a value is the argument of an operation by itself, without a key."""
        shape = ANY if self._shapes is None else self._shapes.get(f)
        return shape is not None and shape.argument_fits(value)

    def _may_be_pair(self, f: str) -> bool:
        """Returns whether a vector of two may be a value of an operation, or a key with a value."""
        shape = None if self._shapes is None else self._shapes.get(f)
        return shape is not None and shape.may_be_pair

    def _contradict(self, call: _OpenCall, answered: Any, position: int) -> None:
        """Records an answer that contradicts its call. The operation stays one of unknown outcome."""
        self._outcome[call.row] = Outcome.INFO.value
        called, text = _shorten_answer(call.argument), _shorten_answer(answered)
        self._error[call.row] = f"answered {text}"
        self._contradictions.append(_Contradiction(call.row, position, called, text))

    def _is_failed_cas(self, entry: Entry, f: str, value: Any, row: int) -> bool:
        """Returns whether a CAS failed because it found another value. For any other reason there would be an error."""
        return (
            self._refusals
            and (f, entry.type, entry.error) == (CAS, Outcome.FAIL, None)
            and (value is None or to_json(value) == self._argument[row])
        )

    def _find_shape(self, entry: Entry, f: str) -> OperationShape:
        if self._shapes is None:
            return ANY
        shape = self._shapes.get(f)
        if shape is None:
            self._fail(entry, f":{f} is no operation of {self._model}, which has {', '.join(self._shapes)}")
        return shape

    def _list_operations(self) -> str:
        """Returns a sentence on the operations that the entry may have."""
        if self._shapes is None:
            return "name it, such as :f :read"
        return f"{self._model} has {', '.join(f':f :{name}' for name in self._shapes)}"

    def _check_index(self, entry: Entry, position: int) -> int:
        has_index = entry.index is not None
        if self._indexed is None:
            self._indexed = has_index
        if has_index != self._indexed:
            self._fail(entry, "some operations have an :index, and some have none; remove it from all")
        index = position if entry.index is None else entry.index
        if index <= self._last_index:
            self._fail(
                entry,
                f":index {index} does not follow :index {self._last_index}; sort the operations by :index, or judge "
                "each history by itself",
            )
        self._last_index = index
        return index

    def _intern(self, text: str) -> str:
        """Returns one object for all equal texts, which saves memory."""
        return self._texts.setdefault(text, text)

    def _fail(self, entry: Entry, reason: str) -> NoReturn:
        raise MalformedError(self._path, entry.place, reason)


def separate_processes(ops: pa.Table) -> pa.Table:
    """Returns a copy in which no process has an operation after one that never returned.

    The operations after it become a process with an unused number. ``worker`` keeps the number of the file.
    """
    processes = ops["process"].to_pylist()
    unused = iterate_unused(processes)
    current: dict[int, int] = {}
    ended: set[int] = set()
    separate = []
    for process, ret in zip(processes, ops["ret"].to_pylist(), strict=True):
        if process in ended:
            current[process] = next(unused)
            ended.discard(process)
        if ret is None:
            ended.add(process)
        separate.append(current.get(process, process))
    return ops.set_column(ops.schema.get_field_index("process"), OPS.field("process"), pa.array(separate, pa.int32()))


def iterate_unused(processes: Sequence[int]) -> Iterator[int]:
    """Yields numbers that no process has: above all of them if there is room, else from 0 on."""
    used = set(processes)
    first = max(used, default=0) + 1
    begin = first if first + len(processes) < MAX_PROCESSES else 0
    return (number for number in count(begin) if number not in used)


def _shorten_answer(value: Any) -> str:
    text = to_edn(to_json(value))
    return text if len(text) <= LONGEST_ANSWER else text[:LONGEST_ANSWER] + "…"
