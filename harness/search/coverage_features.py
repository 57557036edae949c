"""What states of the system a run came through, as far as its event logs say: what steers the search.

A state is a word. Nothing here knows the system: every event name is taken as it comes, with how often it occurred
(in powers of two), with the event before it on the same node, with the faults in force, with the small numbers that it
carries, such as the size of an in-sync set, an epoch, how many records were cut off; and every fault with how long
before it (in powers of two of milliseconds) its node said what it said last, which leads the search to exact moments.
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
"""Nanoseconds between an event and a fault that may have to do with each other."""
SMALL = 8
"""Larger numbers count by their powers of two."""


Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Steering:
    """What a search learns of a run, beside its verdict: ``states``; ``events``, the names that its logs speak of, for
    which steps can wait; ``injected``, the numbers, from 1, of the steps that acted at all: the others waited in vain,
    or found no time.
    """

    states: frozenset[str]
    events: frozenset[str]
    injected: frozenset[int]

    @staticmethod
    def of(history: HistoryReader | Columns) -> Steering:
        """Of a run that ended."""
        events, faults = (_rows(history, name) for name in ("events", "faults"))
        return Steering(
            reached(events, faults),
            frozenset(row["event"] for row in events),
            frozenset(row["id"] for row in faults if row["phase"] == "injected"),
        )


def reached(events: Rows, faults: Rows) -> frozenset[str]:
    """The states of a run, by rows of the history."""
    events = sorted(events, key=_order)
    struck = [f"{row['fault']} injected" for row in faults if row["phase"] == "injected"]
    return frozenset(
        [*_counts(events), *_sequences(events), *struck, *_amid(events, faults), *_moments(events, faults)]
    )


_READ = {
    "events": ("time", "node", "seq", "event", "key", "epoch", "value"),
    "faults": ("time", "id", "fault", "phase", "targets"),
}


def _rows(history: HistoryReader | Columns, name: str) -> Rows:
    wanted = _READ[name]
    if not isinstance(history, dict):
        return [row for batch in history.batches(name) for row in batch.select(wanted).to_pylist()]
    names, columns = DATA_SETS[name].names, history[name]
    chosen = [columns[names.index(one)] for one in wanted] if columns else []
    return [dict(zip(wanted, row, strict=True)) for row in zip(*chosen, strict=True)]


def _order(row: Mapping[str, Any]) -> tuple[int, str, int]:
    return row["time"], row["node"], row["seq"]


def bucket(number: int) -> int:
    """Small numbers are themselves, others the power of two below."""
    return number if 0 <= number < SMALL else (1 << (abs(number).bit_length() - 1)) * (1 if number > 0 else -1)


def _counts(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    times: Counter[str] = Counter()
    for row in events:
        times[row["event"]] += 1
        for column in ("epoch", "value"):
            if row[column] is not None:
                yield f"{row['event']} {column} {bucket(row[column])}"
    yield from (f"{event} x{bucket(count)}" for event, count in times.items())


def _sequences(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Pairs and triples of one node's events about one key, or about none."""
    last: defaultdict[tuple[str, str | None], tuple[str, ...]] = defaultdict(tuple)
    for row in events:
        where = row["node"], row["key"]
        last[where] = (*last[where], row["event"])[-3:]
        yield " > ".join(last[where][-2:])
        yield " > ".join(last[where])


def _amid(events: Iterable[Mapping[str, Any]], faults: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Events with the faults in force when they occurred."""
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


def _moments(events: Iterable[Mapping[str, Any]], faults: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Faults, injected or healed, shortly after an event: on the fault's own node, and on any other."""
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
            yield f"{row['fault']} {row['phase']} {bucket_of_time(since)} ms after {name} of {whose} node"


def bucket_of_time(nanoseconds: int) -> int:
    """Milliseconds, as the power of two above; 0 is less than one."""
    return 0 if nanoseconds < 1_000_000 else 1 << (nanoseconds // 1_000_000).bit_length()
