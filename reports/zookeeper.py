"""ZooKeeper activity in the nodes' event logs: sessions, writes, and in-sync replicas.

Events have the times of their nodes' clocks, so the activity is only displayed, and proves nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from assay.reports.faults import FaultBand
from assay.reports.history_db import HistoryDatabase, Row
from assay.reports.leadership import find_deaths, natural_sort_key

MOST_EVENTS: Final = 5_000


@dataclass(frozen=True)
class ZooKeeperSession:
    """Interval from ``start`` to ``stop`` (ns) in which a node was registered, by its own knowledge.

    ``lost``: whether the node noticed the end of its session.
    """

    node: str
    start: int
    stop: int
    lost: bool


@dataclass(frozen=True)
class ZooKeeperWrite:
    """A change that went through ZooKeeper."""

    time: int
    node: str
    what: str
    zxid: int


@dataclass(frozen=True)
class InSyncInterval:
    """In-sync replicas of ``key`` from ``start`` to ``stop`` (ns). ``node``: the leader or controller that reported it.

    ``out``: the other assigned replicas; None if the node does not report them.
    """

    key: str
    members: tuple[int, ...]
    epoch: int | None
    node: str
    start: int
    stop: int
    out: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ZooKeeperActivity:
    """Sessions, writes and in-sync replicas of a run; empty for a system without such events."""

    sessions: tuple[ZooKeeperSession, ...] = ()
    writes: tuple[ZooKeeperWrite, ...] = ()
    in_sync: tuple[InSyncInterval, ...] = ()


def read_activity(
    database: HistoryDatabase, faults: Sequence[FaultBand], keys: Collection[str], end: int
) -> ZooKeeperActivity:
    """Reads the activity from events. ``keys``: the partitions whose in-sync replicas are needed."""
    registered = database.rows(
        "select time, node, incarnation, event from events where event in ('registered', 'session-lost') "
        "order by time, node, seq limit ?",
        [MOST_EVENTS],
    )
    written = database.rows(
        "select time, node, event, key, zxid from events where zxid is not null order by time limit ?", [MOST_EVENTS]
    )
    synced = database.rows(
        "select time, node, event, key, epoch, isr, osr, left(detail, 2000) as detail from events "
        "where event in ('became-leader', 'isr-change', 'partition-state-written') and list_contains(?, key) "
        "order by time, node, seq limit ?",
        [sorted(keys), MOST_EVENTS],
    )
    writes = (
        ZooKeeperWrite(row["time"], row["node"], " ".join(filter(None, (row["event"], row["key"]))), row["zxid"])
        for row in written
    )
    return ZooKeeperActivity(
        tuple(compute_sessions(registered, find_deaths(faults), _find_known_end(registered, end))),
        tuple(writes),
        tuple(compute_in_sync(synced, _find_known_end(synced, end))),
    )


def _find_known_end(rows: Sequence[Row], end: int) -> int:
    """Returns the time up to which the state is known: the last row's, if later rows were left out."""
    return int(rows[-1]["time"]) if len(rows) >= MOST_EVENTS else end


def compute_sessions(rows: Iterable[Row], killed: Sequence[tuple[int, str]], end: int) -> list[ZooKeeperSession]:
    """Computes sessions from the events ``registered`` and ``session-lost``, in order of time.

    ``killed``: times and nodes of kills, which end sessions without an event.
    """
    by_node: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        by_node[row["node"]].append((row["time"], row["event"]))
    for time, node in killed:
        if node in by_node:
            by_node[node].append((time, "killed"))
    found = []
    for node in sorted(by_node, key=natural_sort_key):
        changes = sorted(by_node[node])
        for position, (start, event) in enumerate(changes):
            if event == "registered":
                stop, last_event = changes[position + 1] if position + 1 < len(changes) else (max(end, start), "")
                found.append(ZooKeeperSession(node, start, stop, last_event == "session-lost"))
    return found


def compute_in_sync(rows: Iterable[Row], end: int) -> list[InSyncInterval]:
    """Computes consecutive intervals per key. Ignores reports of leaders with an older epoch."""
    last: dict[str, tuple[Row, tuple[int, ...], tuple[int, ...] | None]] = {}
    found: list[InSyncInterval] = []

    def close_interval(key: str, stop: int) -> None:
        row, members, out = last[key]
        found.append(InSyncInterval(key, members, row["epoch"], row["node"], row["time"], max(stop, row["time"]), out))

    for row in rows:
        members = _decode_members(row["detail"]) if row["isr"] is None else _parse_numbers(row["isr"])
        if members is None:
            continue
        out = None if row["osr"] is None else _parse_numbers(row["osr"])
        key = row["key"]
        if key in last:
            before, last_members, known = last[key]
            unchanged = members == last_members and row["epoch"] == before["epoch"] and out in (None, known)
            if (row["epoch"] or 0) < (before["epoch"] or 0) or unchanged:
                continue
            close_interval(key, row["time"])
        last[key] = (row, members, out)
    for key in last:
        close_interval(key, end)
    return found


def _parse_numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(word) for word in text.split(",") if word))


def _decode_members(detail: str) -> tuple[int, ...] | None:
    """Decodes the member list of older event logs, which had no column for it."""
    try:
        decoded = msgspec.json.decode(detail)
    except (msgspec.DecodeError, RecursionError):
        return None
    isr = decoded.get("isr") if isinstance(decoded, dict) else None
    if not isinstance(isr, list) or not all(isinstance(one, int) for one in isr):
        return None
    return tuple(sorted(isr))
