"""Leadership over time, from the nodes' own event logs, with the times of their own clocks.

For a system without event logs, the data are its answers to a query once a second.

A node leads from its ``became-leader`` until another node's ``became-leader`` for the same key: then it is
*superseded*. It may still believe that it leads until it follows, resigns, restarts or is killed. This last interval is
drawn separately, because a stale leader accepts records that will be lost. The plot proves nothing.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from assay.reports.faults import FaultBand
from assay.reports.history_db import HistoryDatabase, Row

MOST_LANES: Final = 12
MOST_KEYS: Final = 120
MOST_EVENTS: Final = 5_000
SIMULTANEOUS: Final = 200_000_000
"""Maximum difference in nanoseconds between leader changes that count as simultaneous."""
CONTROLLER: Final = "controller"
_BEGINS: Final = {"became-leader": False, "seen-leading": False, "became-controller": True}
_ENDS: Final = {"became-follower": False, "seen-gone": False, "resigned-controller": True}
"""Events that begin or end a term, each with whether the term is that of the controller."""
_STARTS: Final = ("registered",)
"""Events of a new process, whose incarnation shows that the former one has ended."""


@dataclass(frozen=True)
class LeadershipTerm:
    """A term of a leader: ``node`` led ``lane`` from ``start`` to ``stop`` (ns).

    ``believed``: the time (>= ``stop``) until which the node believed that it led.
    """

    lane: str
    node: str
    epoch: int | None
    start: int
    stop: int
    believed: int


@dataclass(frozen=True)
class Leadership:
    """Leadership of the keys that are drawn. ``lanes``: from top to bottom. ``folded``: further keys of a lane.

    ``omitted``: number of keys that are not drawn. ``cut``: whether later changes of the run are missing.
    """

    lanes: tuple[str, ...] = ()
    folded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    terms: tuple[LeadershipTerm, ...] = ()
    omitted: int = 0
    cut: bool = False
    from_queries: bool = False
    """Whether the data are the system's answers to queries rather than event logs."""

    def label(self, lane: str) -> str:
        """Returns the label with the number of further keys: ``__consumer_offsets-0 +16``."""
        return f"{lane} +{len(self.folded[lane])}" if lane in self.folded else lane


def read_leadership(
    database: HistoryDatabase, faults: Sequence[FaultBand], wanted: Sequence[str], end: int
) -> Leadership:
    """Computes the lanes. ``wanted``: the keys of findings, which come first. Keys that clients used come next.

    Each of these keys has its own lane. Other keys with equal leadership share a lane.
    """
    from_queries = bool(database.rows("select 1 from events where event = 'seen-leading' limit 1"))
    leaders = "select distinct key from events where event in ('became-leader', 'seen-leading') and key is not null"
    used = {row["key"] for row in database.rows("select distinct key from effects where key is not null")}
    keys = [row["key"] for row in database.rows(leaders)]
    ordered = sorted(keys, key=lambda key: (key not in wanted, key not in used, natural_sort_key(key)))
    rows = database.rows(
        "select time, node, incarnation, event, key, epoch, controller_epoch from events "
        "where list_contains(?, event) "
        "and (key is null or list_contains(?, key)) order by time, node, incarnation, seq limit ?",
        [[*_BEGINS, *_ENDS, *_STARTS], ordered[:MOST_KEYS], MOST_EVENTS],
    )
    terms = compute_terms(rows, find_deaths(faults), end)
    folded = group_alike(ordered[:MOST_KEYS], [key for key in ordered if key in wanted or key in used], terms)
    drawn = [key for key in folded if any(term.lane == key for term in terms)][:MOST_LANES]
    lanes = sorted(drawn, key=lambda key: (key not in wanted and key not in used, natural_sort_key(key)))
    if any(term.lane == CONTROLLER for term in terms):
        lanes.insert(0, CONTROLLER)
    shown = [term for term in terms if term.lane in lanes]
    nodes = sorted({term.node for term in shown}, key=natural_sort_key)
    covered = sum(1 + len(folded[key]) for key in drawn)
    return Leadership(
        tuple(lanes), {key: folded[key] for key in drawn if folded[key]}, tuple(nodes), tuple(shown),
        len(keys) - covered, len(rows) == MOST_EVENTS, from_queries,
    )  # fmt: skip


def group_alike(
    keys: Sequence[str], ungrouped: Collection[str], terms: Sequence[LeadershipTerm]
) -> dict[str, tuple[str, ...]]:
    """Groups partitions of one topic that had the same leaders at about the same times.

    Returns for the first key of each group the other keys. A key in ``ungrouped`` is never grouped.
    """
    terms_of: dict[str, list[LeadershipTerm]] = {key: [] for key in keys}
    for term in terms:
        if term.lane in terms_of:
            terms_of[term.lane].append(term)
    folded: dict[str, list[str]] = {}
    for key in keys:
        first = None if key in ungrouped else next(
            (
                other
                for other in folded
                if other not in ungrouped
                and _get_topic(other) == _get_topic(key)
                and _are_alike(terms_of[other], terms_of[key])
            ),
            None,
        )  # fmt: skip
        if first is None:
            folded[key] = []
        else:
            folded[first].append(key)
    return {key: tuple(others) for key, others in folded.items()}


def _get_topic(key: str) -> str:
    return key.rpartition("-")[0]


def _are_alike(terms: Sequence[LeadershipTerm], others: Sequence[LeadershipTerm]) -> bool:
    return len(terms) == len(others) and all(
        term.node == other.node
        and abs(term.start - other.start) < SIMULTANEOUS
        and abs(term.stop - other.stop) < SIMULTANEOUS
        for term, other in zip(terms, others, strict=True)
    )


def compute_terms(rows: Iterable[Row], deaths: Sequence[tuple[int, str]], end: int) -> list[LeadershipTerm]:
    """Computes the terms from events in the order of their times. ``deaths``: times and nodes of killed processes."""
    begins: dict[str, list[Row]] = defaultdict(list)
    leadership_ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    process_ends: dict[str, list[int]] = defaultdict(list)
    for time, node in deaths:
        process_ends[node].append(time)
    incarnations: dict[str, int] = {}
    for row in rows:
        node, event = row["node"], row["event"]
        if incarnations.setdefault(node, row["incarnation"]) != row["incarnation"]:
            incarnations[node] = row["incarnation"]
            process_ends[node].append(row["time"])
        if event in _BEGINS:
            begins[_find_lane(row, _BEGINS[event])].append(row)
        elif event in _ENDS:
            leadership_ends[node, _find_lane(row, _ENDS[event])].append(row["time"])
    terms = []
    for lane, changes in begins.items():
        for position, row in enumerate(changes):
            start, node = row["time"], row["node"]
            following = next((other["time"] for other in changes[position + 1 :]), end)
            again = [other["time"] for other in changes[position + 1 :] if other["node"] == node]
            ends = [time for time in (*leadership_ends[node, lane], *process_ends[node], *again) if time > start]
            believed = min([*ends, max(end, start)])
            epoch = row["controller_epoch"] if lane == CONTROLLER and row["key"] is None else row["epoch"]
            terms.append(LeadershipTerm(lane, node, epoch, start, max(start, min(following, believed)), believed))
    return terms


def natural_sort_key(text: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts ``orders-2`` before ``orders-10``."""
    parts = [part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", text)]
    # Numbers of different lengths are compared by length, because Python converts no more than 4,300 digits.
    return [(-1 if place % 2 == 0 else len(part), part) for place, part in enumerate(parts)]


def _find_lane(row: Row, controller: bool) -> str:
    return CONTROLLER if controller else str(row["key"])


def find_deaths(faults: Sequence[FaultBand]) -> list[tuple[int, str]]:
    """Returns the time and node of each process that a fault ended."""
    return [(band.injected, node) for band in faults if band.injected is not None and band.ended_at_once
            for node in band.targets]  # fmt: skip
