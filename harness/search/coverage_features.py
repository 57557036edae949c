"""Features of a run, from its event logs and faults: they steer the search.

A feature is a word for a state that the run reached. Nothing here knows the system; event names are taken as they are.
These features exist:

- an event, with its count (in powers of two)
- an event, with the numbers it carries: an epoch, the size of an in-sync set, the number of records cut off
- two and three events in a row on one node
- an event, with the faults in force
- a fault, with the time since an event before it (in powers of two of milliseconds), which leads the search to exact
  moments

``OnlineFeatures`` has the features of a run while it goes on, which decide at which moments a search may branch. They
equal the others as far as the past alone determines them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.in_memory import Columns

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader

NEAR = 1_000_000_000
"""Nanoseconds between an event and a fault that may be related."""
SMALL = 8
"""Numbers from here on count by their powers of two."""


Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class RunFeatures:
    """Facts about a run that steer the search, apart from its verdict.

    - ``states``: the features
    - ``events``: the event names of its logs, which later steps can wait for
    - ``injected``: the numbers, from 1, of the steps that acted; the others waited in vain or found no time
    """

    states: frozenset[str]
    events: frozenset[str]
    injected: frozenset[int]

    @staticmethod
    def of(history: HistoryReader | Columns) -> RunFeatures:
        """Extracts the facts from the history of a finished run."""
        events, faults = (_read_rows(history, name) for name in ("events", "faults"))
        return RunFeatures(
            extract_features(events, faults),
            frozenset(row["event"] for row in events),
            frozenset(row["id"] for row in faults if row["phase"] == "injected"),
        )


def extract_features(events: Rows, faults: Rows) -> frozenset[str]:
    """Returns the features of a run, from the rows of its tables ``events`` and ``faults``."""
    events = sorted(events, key=_event_sort_key)
    struck = [f"{row['fault']} injected" for row in faults if row["phase"] == "injected"]
    return frozenset(
        [
            *_count_features(events),
            *_sequence_features(events),
            *struck,
            *_fault_overlap_features(events, faults),
            *_fault_delay_features(events, faults),
        ]
    )


_READ = {
    "events": ("time", "node", "seq", "event", "key", "epoch", "value"),
    "faults": ("time", "id", "fault", "phase", "targets"),
}


def _read_rows(history: HistoryReader | Columns, name: str) -> Rows:
    wanted = _READ[name]
    if not isinstance(history, dict):
        return [row for batch in history.batches(name) for row in batch.select(wanted).to_pylist()]
    names, columns = DATA_SETS[name].names, history[name]
    chosen = [columns[names.index(one)] for one in wanted] if columns else []
    return [dict(zip(wanted, row, strict=True)) for row in zip(*chosen, strict=True)]


def _event_sort_key(row: Mapping[str, Any]) -> tuple[int, str, int]:
    return row["time"], row["node"], row["seq"]


def to_bucket(number: int) -> int:
    """Returns a small number itself, and for another one the power of two below it."""
    return number if 0 <= number < SMALL else (1 << (abs(number).bit_length() - 1)) * (1 if number > 0 else -1)


def _count_features(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    times: Counter[str] = Counter()
    for row in events:
        times[row["event"]] += 1
        for column in ("epoch", "value"):
            if row[column] is not None:
                yield f"{row['event']} {column} {to_bucket(row[column])}"
    yield from (f"{event} x{to_bucket(count)}" for event, count in times.items())


def _sequence_features(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields pairs and triples of consecutive events of one node about one key, or about none."""
    last: defaultdict[tuple[str, str | None], tuple[str, ...]] = defaultdict(tuple)
    for row in events:
        where = row["node"], row["key"]
        last[where] = (*last[where], row["event"])[-3:]
        yield " > ".join(last[where][-2:])
        yield " > ".join(last[where])


def _fault_overlap_features(events: Iterable[Mapping[str, Any]], faults: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields each event with the faults in force when it occurred."""
    steps = sorted(
        [(row["time"], 0, row["id"], row["fault"], row["phase"]) for row in faults]
        + [(row["time"], 1, 0, row["event"], "") for row in events]
    )
    in_force: dict[int, str] = {}
    for _, is_event, number, name, phase in steps:
        if is_event:
            yield f"{name} during {'+'.join(sorted(set(in_force.values()))) or 'nothing'}"
        elif phase == "injected":
            in_force[number] = name
        elif phase == "healed":
            in_force.pop(number, None)


def _fault_delay_features(events: Iterable[Mapping[str, Any]], faults: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields faults, injected or healed, with the events shortly before: on the fault's own node, and on any other."""
    known = list(events)
    for row in faults:
        if row["phase"] not in ("injected", "healed"):
            continue
        closest: dict[tuple[str, bool], int] = {}
        for event in known:
            since = row["time"] - event["time"]
            if 0 <= since < NEAR:
                closest[event["event"], event["node"] in row["targets"]] = since
        for (name, own), since in closest.items():
            whose = "its" if own else "another"
            yield f"{row['fault']} {row['phase']} {to_time_bucket(since)} ms after {name} of {whose} node"


def to_time_bucket(nanoseconds: int) -> int:
    """Returns the next power of two above the milliseconds; 0 for less than one millisecond."""
    return 0 if nanoseconds < 1_000_000 else 1 << (nanoseconds // 1_000_000).bit_length()


class OnlineFeatures:
    """Feature extractor for one run. Events must come in the order that the harness reads."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._last: defaultdict[tuple[str, str | None], tuple[str, ...]] = defaultdict(tuple)
        self._in_force: dict[int, str] = {}

    def fault(self, number: int, name: str, phase: str) -> None:
        """Takes a phase of a fault: it comes into force, or is over."""
        if phase == "injected":
            self._in_force[number] = name
        elif phase == "healed":
            self._in_force.pop(number, None)

    def event(self, node: str, event: str, key: str | None, epoch: int | None, value: int | None) -> Iterator[str]:
        """Yields the features of one line of a node's event log."""
        self._times[event] += 1
        yield f"{event} x{to_bucket(self._times[event])}"
        for column, number in (("epoch", epoch), ("value", value)):
            if number is not None:
                yield f"{event} {column} {to_bucket(number)}"
        before = self._last[node, key] = (*self._last[node, key], event)[-3:]
        yield " > ".join(before[-2:])
        yield " > ".join(before)
        yield f"{event} during {'+'.join(sorted(set(self._in_force.values()))) or 'nothing'}"
