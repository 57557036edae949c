"""What states of the system a run came through, as far as its event logs say: what steers the search.

A state is a word. Nothing here knows the system: every event name is taken as it comes, with how often it occurred
(in powers of two), with the event before it on the same node, with the faults in force, with the small numbers that it
carries, such as the size of an in-sync set, an epoch, how many records were cut off; and every fault with how long
before it (in powers of two of milliseconds) its node said what it said last, which leads the search to exact moments.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from assay.harness.core.history import HistoryReader

NEAR = 1_000_000_000
"""Nanoseconds between an event and a fault that may have to do with each other."""
SMALL = 8
"""Larger numbers count by their powers of two."""


def reached(history: Path) -> frozenset[str]:
    """The states of a run that ended."""
    reader = HistoryReader(history, optional=("events", "faults"))
    events = sorted(_rows(reader, "events", "time", "node", "seq", "event", "key", "epoch", "value"), key=_order)
    faults = list(_rows(reader, "faults", "time", "id", "fault", "phase", "targets"))
    return frozenset([*_counts(events), *_sequences(events), *_amid(events, faults), *_moments(events, faults)])


def _rows(reader: HistoryReader, name: str, *columns: str) -> Iterator[dict[str, Any]]:
    for batch in reader.batches(name):
        yield from batch.select(columns).to_pylist()


def _order(row: dict[str, Any]) -> tuple[int, str, int]:
    return row["time"], row["node"], row["seq"]


def bucket(number: int) -> int:
    """Small numbers are themselves, others the power of two below."""
    return number if 0 <= number < SMALL else (1 << (abs(number).bit_length() - 1)) * (1 if number > 0 else -1)


def _counts(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    times: Counter[str] = Counter()
    for row in events:
        times[row["event"]] += 1
        for column in ("epoch", "value"):
            if row[column] is not None:
                yield f"{row['event']} {column} {bucket(row[column])}"
    yield from (f"{event} x{bucket(count)}" for event, count in times.items())


def _sequences(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Pairs and triples of one node's events about one key, or about none."""
    last: defaultdict[tuple[str, str | None], tuple[str, ...]] = defaultdict(tuple)
    for row in events:
        where = row["node"], row["key"]
        last[where] = (*last[where], row["event"])[-3:]
        yield " > ".join(last[where][-2:])
        yield " > ".join(last[where])


def _amid(events: Iterable[dict[str, Any]], faults: Iterable[dict[str, Any]]) -> Iterator[str]:
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


def _moments(events: Iterable[dict[str, Any]], faults: Iterable[dict[str, Any]]) -> Iterator[str]:
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


def event_names(history: Path) -> frozenset[str]:
    """What the system's event logs speak of: what steps can wait for."""
    reader = HistoryReader(history, optional=("events", "faults"))
    return frozenset(row["event"] for row in _rows(reader, "events", "event"))


def injected(history: Path) -> frozenset[int]:
    """Which steps of the schedule, from 1, acted at all: the others waited in vain, or found no time."""
    reader = HistoryReader(history, optional=("events", "faults"))
    return frozenset(row["id"] for row in _rows(reader, "faults", "id", "phase") if row["phase"] == "injected")
