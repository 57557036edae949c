"""The faults of a run as bands on the time axis: from injection to heal, and from heal to recovery.

The links that a fault has cut are described from the evidence in the history.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from assay.checkers.judging.coverage import make_successes
from assay.checkers.judging.finding_context import read_begin
from assay.checkers.times import in_seconds
from assay.reports.history_db import HistoryDatabase, Row

MOST_GROUPS: Final = 4
"""Maximum number of groups of links that are described; further groups are only counted."""

LinkDirection = tuple[str, str]
"""A cut direction of a link: the receiver that drops messages, and the sender."""


def describe_cut(detail: Mapping[str, Any]) -> str | None:
    """Describes cut links: ``cut n1 from n2 and zk1, ZooKeeper included, as partition-one does``. None without any.

    ``detail``: of the fault's injected row. Nodes with many links come first. ZooKeeper is mentioned only if the
    evidence says whether it was cut off. The name of a built-in partition is added only if it cuts exactly these links
    (evidence ``likeness``).
    """
    evidence = detail.get("evidence")
    links = evidence.get("cut") if isinstance(evidence, dict) else None
    if not isinstance(evidence, dict) or not isinstance(links, list) or not links:
        return None
    groups = list(_iterate_groups({direction for link in links for direction in _split_link(str(link))}))
    more = f" and {len(groups) - MOST_GROUPS} more groups of links" if len(groups) > MOST_GROUPS else ""
    zookeeper = evidence.get("zookeeper")
    extent = "" if zookeeper is None else ", ZooKeeper included" if zookeeper else ", not ZooKeeper"
    name = f", as {evidence['likeness']} does" if "likeness" in evidence else ""
    return f"cut {'; '.join(groups[:MOST_GROUPS])}{more}{extent}{name}"


def _split_link(link: str) -> list[LinkDirection]:
    """Splits ``n1|n2`` into both directions, and ``n1<-n2`` into one."""
    near, sign, far = (*re.split(r"(\||<-)", link, maxsplit=1), "", "")[:3]
    return [(near, far), (far, near)] if sign == "|" else [(near, far)]


def _iterate_groups(remaining: set[LinkDirection]) -> Iterable[str]:
    """Yields a description of each group of links with a common receiver."""
    while remaining:
        link_counts = Counter(near for near, _ in remaining)
        hub = min(link_counts, key=lambda node: (-link_counts[node], node))
        far = {other for near, other in remaining if near == hub}
        mutual = {other for other in far if (other, hub) in remaining}
        if mutual:
            yield f"{hub} from {_join_names(mutual)}"
        if far - mutual:
            yield f"what {hub} gets from {_join_names(far - mutual)}"
        remaining = remaining - {(hub, other) for other in far} - {(other, hub) for other in mutual}


def _join_names(names: set[str]) -> str:
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last


MOST_FAULTS: Final = 2000
"""Maximum number of faults that are drawn and listed; further faults are only counted. An hour of the mix has 1,000."""


@dataclass(frozen=True)
class FaultBand:
    """A fault. Times are in nanoseconds since the run began; None if the phase did not occur."""

    id: int
    fault: str
    what: str
    """The fault as the schedule has it: ``kill leader of orders-0``."""
    targets: tuple[str, ...]
    intended: int | None
    began: int | None
    """Begin of the injection; None if unknown."""
    injected: int | None
    """Completion of the injection."""
    healed: int | None
    recovered: int | None
    took_effect: bool | None
    """Whether it was proved that the fault took effect; None if unknown."""
    cut: str | None
    """Description of the links that the fault cut; None for a fault that cut no link."""
    ended_at_once: bool
    """Whether the injection ended the targets' main processes, all at once."""
    failures: tuple[str, ...]
    """Failures of the fault itself: ``effect: no message was dropped``."""
    failed_at: int | None
    process: str | None
    """Name of the process that the fault hit, if it hit only one process per target."""
    succeeded: int
    """Number of operations that began and succeeded while the fault was active, counted as in the verdict."""

    @property
    def target_text(self) -> str:
        return (", ".join(self.targets) or "—") + (f" ({self.process})" if self.process else "")

    @property
    def start(self) -> int | None:
        """Earliest known time at which the fault may have had an effect; None if it was never injected."""
        return self.injected if self.injected is None or self.began is None else min(self.began, self.injected)

    def overlaps(self, start: int, stop: int) -> bool:
        """Returns whether the fault was active at some moment of the closed interval."""
        return self.start is not None and self.start <= stop and (self.healed is None or self.healed >= start)


def format_duration(began: int | None, injected: int, healed: int | None, digits: int) -> str:
    """Formats ``from 1.480 s (confirmed at 1.512 s) to 3.006 s``: begin and completion of the injection, then the heal.

    If the begin is unknown, returns ``from 1.512 s at the latest``. Times are in nanoseconds since the run began.
    """
    confirmed = in_seconds(injected, digits)
    if began is None:
        since = f"{confirmed} s at the latest"
    elif in_seconds(began, digits) == confirmed:
        since = f"{confirmed} s"
    else:
        since = f"{in_seconds(began, digits)} s (confirmed at {confirmed} s)"
    return f"from {since}" + (", and was never healed" if healed is None else f" to {in_seconds(healed, digits)} s")


def read_fault_bands(database: HistoryDatabase) -> tuple[tuple[FaultBand, ...], int]:
    """Returns the first faults by id, and the number of further faults."""
    total = int(database.rows("select count(distinct id) as total from faults")[0]["total"])
    if total == 0:
        return (), 0
    rows = database.rows(
        "select id, fault, targets, phase, time, left(detail, 20000) as detail, took_effect, "
        "coalesce(ends_process and not gradual, false) as ended_at_once "
        "from faults where id in (select distinct id from faults order by id limit ?) order by id, time",
        [MOST_FAULTS],
    )
    by_id: dict[int, list[Row]] = {}
    for row in rows:
        by_id.setdefault(row["id"], []).append(row)
    succeeded = _count_successes(database)
    return tuple(_to_band(id, steps, succeeded.get(id, 0)) for id, steps in by_id.items()), total - len(by_id)


def _count_successes(database: HistoryDatabase) -> dict[int, int]:
    make_successes(database.engine)  # creates the table ``successes``: operations that wrote or read a value
    rows = database.rows(
        "with band as (select id, min(time) filter (phase = 'injected') as injected, "
        "coalesce(max(time) filter (phase = 'healed'), 9223372036854775807) as healed from faults group by id "
        "order by id limit ?) "
        "select id, count(*) as total from band join successes on call >= injected and ret <= healed group by id",
        [MOST_FAULTS],
    )
    return {row["id"]: int(row["total"]) for row in rows}


def _to_band(id: int, phase_rows: Sequence[Row], succeeded: int) -> FaultBand:
    def when(phase: str) -> int | None:
        return next((int(row["time"]) for row in phase_rows if row["phase"] == phase), None)

    details = [decode_detail(row["detail"]) for row in phase_rows]
    failed = [(row, detail) for row, detail in zip(phase_rows, details, strict=True) if row["phase"] == "failed"]
    fault = str(phase_rows[0]["fault"])
    targets = max((_decode_names(row["targets"]) for row in phase_rows), key=len)
    process = next((str(detail["process"]) for detail in details if detail.get("process")), None)
    return FaultBand(
        id=id,
        fault=fault,
        what=next((str(detail["what"]) for detail in details if detail.get("what")), fault),
        targets=targets,
        intended=when("intended"),
        began=next((known for detail in details if (known := read_begin(detail)) is not None), None),
        injected=when("injected"),
        healed=when("healed"),
        recovered=when("recovered"),
        cut=next((words for detail in details if (words := describe_cut(detail))), None),
        took_effect=next((row["took_effect"] for row in phase_rows if row["phase"] == "healed"), None),
        ended_at_once=process in (None, "main") and any(row["ended_at_once"] for row in phase_rows),
        failures=tuple(_format_failure(detail) for _, detail in failed),
        failed_at=int(failed[0][0]["time"]) if failed else None,
        process=process,
        succeeded=succeeded,
    )


def _format_failure(detail: dict[str, Any]) -> str:
    stage, reason = detail.get("stage"), str(detail.get("reason", "no reason was given"))
    return f"{stage}: {reason}" if stage else reason


def decode_detail(text: str) -> dict[str, Any]:
    """Decodes a fault's detail. Returns an empty dict if it is invalid, because a band needs only the times."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _decode_names(text: str) -> tuple[str, ...]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return (text,)
    return tuple(str(name) for name in found) if isinstance(found, list) else (text,)
