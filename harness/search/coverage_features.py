"""Features of a run, from its event logs and faults. A search favours runs with new features.

A feature is a short text for a state that the run reached. Event names are taken as the system logs them. These
features exist:

- an event, with its count (in powers of two)
- an event, with the numbers it carries: an epoch, the size of an in-sync set, the number of records cut off
- two and three events in a row on one node
- an event, with the active faults
- a fault, with the time since an event before it (in powers of two of milliseconds), which leads the search to exact
  moments

``OnlineFeatures`` finds the features of a run that is still being played, because a search may branch at new features.
The finished run has the same features, with two exceptions: counts have grown, and the times between events and faults
are known only then.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.harness.core.history.data_sets import DATA_SETS
from assay.harness.core.history.in_memory import Columns

if TYPE_CHECKING:
    from assay.harness.core.history import HistoryReader

NEAR = 1_000_000_000
"""Nanoseconds between an event and a fault that may be related."""
SMALL = 8
"""Numbers from here on are rounded down to a power of two."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class RunFeatures:
    """Facts about a run that steer the search, apart from its verdict.

    - ``states``: the features; reports call them states
    - ``events``: the event names of its logs, which later steps can wait for
    - ``injected``: the numbers, from 1, of the steps that were injected; for all other steps, the awaited event never
      came or no time was left
    """

    states: frozenset[str]
    events: frozenset[str]
    injected: frozenset[int]

    @staticmethod
    def of(history: HistoryReader | Columns) -> RunFeatures:
        """Extracts the facts from the history of a finished run, or from its columns by data set."""
        events, faults = (_read_rows(history, name) for name in ("events", "faults"))
        return RunFeatures(
            extract_features(events, faults),
            frozenset(row["event"] for row in events),
            frozenset(row["id"] for row in faults if row["phase"] == "injected"),
        )


def extract_features(events: Rows, faults: Rows) -> frozenset[str]:
    """Returns the features of a run, from the rows of its tables ``events`` and ``faults``."""
    events = sorted(events, key=lambda row: (row["time"], row["node"], row["seq"]))
    phases = sorted(faults, key=lambda row: (row["time"], row["id"], row["fault"], row["phase"]))
    online = OnlineFeatures()
    features = {f"{row['fault']} injected" for row in faults if row["phase"] == "injected"}
    for row in heapq.merge(phases, events, key=lambda row: row["time"]):  # at equal times, faults come first
        if "phase" in row:
            online.add_fault(row["id"], row["fault"], row["phase"])
        else:
            features.update(online.add_event(*(row[name] for name in ("node", "event", "key", "epoch", "value"))))
    return frozenset([*features, *map(online.count_feature, online.counts), *_iterate_fault_delays(events, faults)])


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


def to_bucket(number: int) -> int:
    """Returns a small number itself, and rounds any other number down to a power of two."""
    return number if 0 <= number < SMALL else (1 << (abs(number).bit_length() - 1)) * (1 if number > 0 else -1)


def _iterate_fault_delays(events: Rows, faults: Rows) -> Iterator[str]:
    """Yields features for the events shortly before a fault was injected or healed, on its own node or on another."""
    for row in faults:
        if row["phase"] not in ("injected", "healed"):
            continue
        closest: dict[tuple[str, bool], int] = {}
        for event in events:
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
    """Extracts the features of one run. Events must come in the order in which the harness reads them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """The number of events of each name so far."""
        self._last: defaultdict[tuple[str, str | None], tuple[str, ...]] = defaultdict(tuple)
        """The last three events by node and key (None for events without a key)."""
        self._active: dict[int, str] = {}

    def add_fault(self, number: int, name: str, phase: str) -> None:
        """Records a phase of a fault, which becomes active or ends."""
        if phase == "injected":
            self._active[number] = name
        elif phase == "healed":
            self._active.pop(number, None)

    def add_event(self, node: str, event: str, key: str | None, epoch: int | None, value: int | None) -> Iterator[str]:
        """Yields the features of one line of a node's event log, except its :meth:`count_feature`."""
        self.counts[event] += 1
        for column, number in (("epoch", epoch), ("value", value)):
            if number is not None:
                yield f"{event} {column} {to_bucket(number)}"
        latest = self._last[node, key] = (*self._last[node, key], event)[-3:]
        yield " > ".join(latest[-2:])
        yield " > ".join(latest)
        yield f"{event} during {'+'.join(sorted(set(self._active.values()))) or 'nothing'}"

    def count_feature(self, event: str) -> str:
        """Returns the feature for the number of these events so far."""
        return f"{event} x{to_bucket(self.counts[event])}"
