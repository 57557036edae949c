"""The honest durability contract: what a log may lose when all its servers lose power together.

A server that fsyncs every M messages, not each, has up to M - 1 of a partition in memory alone. As long as one of those
that have them keeps its power they are safe. When all lose it, each partition is cut to a prefix, and that the contract
may allow (``Contract.unflushed``, M - 1). What is allowed is reported as ``unflushed-loss``, and everything else is
judged as if those records had been sent with an unknown outcome and never read: what is left of the history before the
loss ends at the cut, and a consumer begins again after it.

Nothing else is allowed. A loss of power counts when it was injected, proved or not, and its targets are all servers
that serve then: one whose process another fault has ended or stopped may be in no in-sync set any more. The proof asks
for more than the loss: that a process ended in the middle of an fsync, say. Of a partition M - 1 records may go,
counted from the last known before, by a send or by a poll; other checks find what else is gone. And they must go
together: of those at or above the cut none may be there afterwards, nor at another offset above it. Where one is, no
cut is granted.
When unflushed records become durable by their age is not judged: how long an fsync takes is the disk's affair.

A record has gone when a poll called after the loss passed its offset without it, an operation that ended after the loss
shows another value there, or the drain ended at or below it. Records that only a log end speaks of, since no one knows
what they were, have gone when what was sent after the loss stands below that end, or the log ended lower. Until
something of the kind is known it accuses no one either, so a run that was cut short, before the heal or after it, is
judged by what it shows.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from assay.checkers.check import Check, Evidence, Explanation, Family, Table
from assay.checkers.engine import INFINITY, Engine, Row
from assay.checkers.engine.base import quoted
from assay.checkers.judging.history_views import literal
from assay.checkers.sql_idioms import INJECTED, first_of, order_by
from assay.checkers.times import NANOSECONDS, seconds
from assay.harness.core.history.data_sets import EFFECTS

UNFLUSHED_LOSS: Final = "unflushed-loss"
ERA: Final = 1 << 32
"""Added to assignments for each cut before them, so that no chain of polls goes on across one."""
_ABSENT: Final = f"""
    select j.targets, j.moves_replicas, coalesce(n.not_before, j.time) as called, j.time as since,
        coalesce(h.time, {INFINITY}) as until, h.id is not null as over,
        coalesce(j.pauses_process and j.gradual, false) as one_by_one, j.detail as injected, h.detail as healed
    from (select * from faults where {INJECTED}) j
        left join (select id, not_before from faults where phase = 'intended') n on j.id = n.id
        left join (select id, time, detail from faults where phase = 'healed') h on j.id = h.id
    where j.ends_process or j.pauses_process
    """
RESUMED: Final = NANOSECONDS
"""So long before a heal begins no event is counted: by its time it may have been written as the process went on."""
NO_CUTS: Final = "select cast(null as string) as key, 0 as since, 0 as until, 0 as cut, 0 as era where 1 = 0"


@dataclass(frozen=True)
class Cut:
    """What of ``key`` was there at ``moment`` (nanoseconds) ends below offset ``at``."""

    key: str
    moment: int
    at: int


def cuts(engine: Engine, unflushed: int) -> list[Cut]:
    """The cuts that are granted, by key and moment."""
    granted: list[Cut] = []
    for moment in _moments(engine):
        granted += _cuts(engine, moment, unflushed, granted)
    return sorted(granted, key=lambda cut: (cut.key, cut.moment))


def _moments(engine: Engine) -> list[int]:
    """When all servers were without power, or may have been: what a proof lacks of a loss is what came before it and
    after it, and one that failed may have hit all the same. Of several that go one after the other the last one alone
    loses its power (``outage-power-loss``).
    """
    there = _servers(engine)
    rows = engine.rows(
        f"""
        select f.targets, f.time as moment, coalesce(f.gradual, false) as gradual
        from (select * from faults where {INJECTED}) f where f.loses_unsynced {order_by("f.time")}
        """
    )
    hit = [(row["moment"], _names(row["targets"]), row["gradual"]) for row in rows]
    return [
        moment
        for moment, names, gradual in hit
        if (servers := there(moment)) and servers <= names and not (gradual and len(names) > 1)
    ]


def _servers(engine: Engine) -> Callable[[int], set[str]]:
    """The servers that serve at a moment: those that have written an event by then, no other fault keeps from it, and
    no fault has added and removed again: a heal has come to its end, whatever was proved of the rest. A fault that
    pauses its targets one by one keeps none of them from it before the last event that it has written.
    """
    rows = engine.rows("select node, min(time) as first from events group by node")
    first: dict[str, int] = {row["node"]: row["first"] for row in rows}
    absent: dict[str, list[tuple[int, int]]] = {}
    for row in engine.rows(_ABSENT):
        last = _last_written(engine, row)
        for name in _names(row["targets"]) & first.keys():
            added = row["moves_replicas"] and row["over"] and row["called"] <= first[name]
            since = max(row["since"], last.get(name, 0))
            absent.setdefault(name, []).append((since, INFINITY if added else row["until"]))

    def there(moment: int) -> set[str]:
        return {
            name
            for name, since in first.items()
            if since <= moment and not any(begun < moment < over for begun, over in absent.get(name, ()))
        }

    return there


def _last_written(engine: Engine, fault: Row) -> dict[str, int]:
    """Of a fault that pauses one by one: by node, the last event of the process that was there when it began. It had
    not been paused before that, since it would not have gone on until the heal.
    """
    if not (fault["one_by_one"] and fault["over"]):
        return {}
    injected, healed = json.loads(fault["injected"]), json.loads(fault["healed"])
    if not {"began", "at"} <= injected.keys() or "at" not in healed:  # a history from elsewhere
        return {}
    began = injected["began"]
    until = began + int((healed["at"] - injected["at"]) * NANOSECONDS) - RESUMED
    lives = engine.rows(
        f"""
        select node, incarnation, min(time) as first, max(time) as last from events
        where incarnation <> 0 and time < {until} group by node, incarnation {order_by("first")}
        """
    )
    return {row["node"]: row["last"] for row in lives if row["first"] <= began}


def _names(targets: str) -> set[str]:
    """A list in JSON; in a history that came from elsewhere it may be the name of one node."""
    try:
        found = json.loads(targets)
    except ValueError:
        found = None
    return set(map(str, found)) if isinstance(found, list) else {targets}


def _cuts(engine: Engine, moment: int, unflushed: int, granted: Sequence[Cut]) -> list[Cut]:
    gone: dict[str, int] = {}
    hidden: dict[str, list[int]] = {}
    found: dict[str, int] = {}
    for row in engine.rows(_tail(moment, unflushed, granted)):
        key, position = row["key"], row["position"]
        if row["gone"]:
            gone[key] = min(position, gone.get(key, position))
        elif row["hidden"]:
            hidden.setdefault(key, []).append(position)
        if row["found"] is not None:
            found[key] = max(row["found"], found.get(key, row["found"]))
    for key, positions in hidden.items():
        if above := [position for position in positions if position > found.get(key, -1)]:
            gone[key] = min(*above, gone.get(key, above[0]))
    for row in engine.rows(_ended(moment, unflushed, granted)):
        key, position = row["key"], row["position"]
        if position > found.get(key, -1):
            gone[key] = min(position, gone.get(key, position))
    return [Cut(key, moment, at) for key, at in gone.items() if found.get(key, -1) < at]


def _ended(moment: int, unflushed: int, granted: Sequence[Cut]) -> str:
    """Where the log went on or ended after the moment, though it had ended higher before: by no more than may go."""
    taken = "".join(
        f" and not (key = {literal(cut.key)} and position > {cut.at} and ret < {cut.moment})" for cut in granted
    )
    return f"""
        with ends as (
            select key, max(position) as ended from effects
            where kind = 'end' and outcome = 'ok' and ret < {moment}{taken} group by key),
        sends as (
            select key, value, min(call) as call from effects
            where kind = 'append' and outcome <> 'fail' and value is not null group by key, value),
        later as (
            select s.key, e.position from sends s
                join effects e on s.key = e.key and s.value = e.value
            where s.call >= {moment} and e.kind in ('append', 'observe') and e.outcome = 'ok' and e.position is not null
            union all
            select key, position from effects
            where kind in ('end', 'drained') and outcome = 'ok' and call >= {moment} and position is not null)
        select n.key, l.position from ends n join later l on n.key = l.key
        where l.position < n.ended and l.position >= greatest(n.ended, 0) - {unflushed} group by n.key, l.position
        """


def _tail(moment: int, unflushed: int, granted: Sequence[Cut]) -> str:
    """The last records known before the moment, and what became of each.

    ``gone``: it certainly is. ``hidden``: a log end at or below it was reported, so it may have gone, though reported
    ends may just lag behind. ``found``: the highest offset at which its value was shown afterwards. What was
    acknowledged in an operation that spans the moment may have been so before it, as one message of several, and be
    gone; if it is there, it may have been sent afterwards, and proves nothing. But where it stands at the offset of
    another record, one of the two has gone.
    """
    taken = "".join(
        f" and not (key = {literal(cut.key)} and position >= {cut.at} and ret < {cut.moment})" for cut in granted
    )
    return f"""
        with known as (
            select key, value, position, min(case when ret < {moment} then 0 else 1 end) as late from effects
            where kind in ('append', 'observe') and outcome = 'ok' and value is not null and position is not null
                and (ret < {moment}{taken} or (kind = 'append' and call < {moment} and ret >= {moment}))
            group by key, value, position),
        tail as (
            select k.key, k.value, k.position, k.late
            from known k join (
                select key, coalesce(max(case when late = 0 then position end), min(position)) as last
                from known group by key) e on k.key = e.key and k.position > greatest(e.last, 0) - {unflushed}),
        shown as (
            select key, value, position from effects
            where kind = 'observe' and call >= {moment} and value is not null group by key, value, position),
        latest as (select key, value, max(position) as position from shown group by key, value),
        placed as (
            select key, value, position from effects
            where kind in ('append', 'observe') and outcome = 'ok' and ret >= {moment} and value is not null),
        replaced as (
            select t.key, t.position from tail t join placed p
                on t.key = p.key and t.position = p.position and t.value <> p.value
            group by t.key, t.position),
        polls as (
            select op, key, min(case when kind = 'observe-begin' then position end) as first_offset,
                max(case when kind = 'observe-end' then position end) as next_offset
            from effects where kind in ('observe-begin', 'observe-end') and call >= {moment} and outcome = 'ok'
            group by op, key),
        passed as (
            select t.key, t.position from tail t join polls p
                on t.key = p.key and t.position >= p.first_offset and t.position < p.next_offset
            group by t.key, t.position),
        drained as (
            select key, max(position) as settled from effects where kind = 'drained' and outcome = 'ok' group by key),
        ended as (
            select key, min(position) as least from effects
            where kind = 'end' and outcome = 'ok' and call >= {moment} group by key)
        select t.key, t.position, case when t.late = 0 then l.position end as found,
            case when s.key is null and (r.key is not null or p.key is not null or t.position >= d.settled)
                then 1 else 0 end as gone,
            case when s.key is null and t.position >= n.least then 1 else 0 end as hidden
        from tail t
            left join shown s on t.key = s.key and t.value = s.value and t.position = s.position
            left join latest l on t.key = l.key and t.value = l.value
            left join replaced r on t.key = r.key and t.position = r.position
            left join passed p on t.key = p.key and t.position = p.position
            left join drained d on t.key = d.key
            left join ended n on t.key = n.key
        """


def eras(granted: list[Cut]) -> list[tuple[str, int, int, int, int]]:
    """Per key its times between cuts: key, since, until (not included), the lowest cut still to come, number from 0."""
    found = []
    for key in sorted({cut.key for cut in granted}):
        mine = sorted((cut for cut in granted if cut.key == key), key=lambda cut: cut.moment)
        edges = [0, *(cut.moment for cut in mine), INFINITY]
        for era, (since, until) in enumerate(itertools.pairwise(edges)):
            found.append((key, since, until, min([cut.at for cut in mine[era:]], default=INFINITY), era))
    return found


def _rewrite() -> str:
    """SQL of ``effects`` without what lies at or above a cut; the same columns."""
    changed = {
        "position": """case when r.key is null then e.position
                when e.kind = 'append' and e.position >= r.cut then null
                when e.kind in ('observe-begin', 'observe-end', 'end', 'seek', 'reset') then least(e.position, r.cut)
                else e.position end""",
        "outcome": """case when r.key is not null and e.kind = 'append' and e.outcome = 'ok' and e.position >= r.cut
                then 'info' else e.outcome end""",
        "assignment": f"""case when r.key is null then e.assignment
                else coalesce(e.assignment, -1) + r.era * {ERA} end""",
    }
    columns = ", ".join(f"{changed.get(name, f'e.{name}')} as {quoted(name)}" for name in EFFECTS.names)
    return f"""
        select {columns}
        from effects e left join log_eras r on e.key = r.key and e.call >= r.since and e.call < r.until
        where r.key is null or e.kind not in ('observe', 'look-up') or e.position is null or e.position < r.cut
        """


def prepare(engine: Engine) -> list[str]:
    """Makes ``log_eras``, and ``log_effects`` again for the log's checks, which come after."""
    unflushed = int(engine.rows("select unflushed from log_declared")[0]["unflushed"])
    found = eras(cuts(engine, unflushed))
    values = ", ".join(f"({literal(key)}, {since}, {until}, {cut}, {era})" for key, since, until, cut, era in found)
    engine.view(
        "log_eras",
        f"with named (key, since, until, cut, era) as (values {values}) "
        "select key, cast(since as bigint) as since, cast(until as bigint) as until, cast(cut as bigint) as cut, "
        "cast(era as bigint) as era from named"
        if found
        else NO_CUTS,
    )
    if found:
        engine.table("log_taken_back", _rewrite())
        engine.view("log_effects", "select * from log_taken_back")
    return []


def _unflushed(row: Row, evidence: Evidence) -> Explanation:
    claim = (
        f"value {row['value']} at offset {row['position']} of {row['key']} was acknowledged to "
        f"{evidence.who(row['ack_op'])} at {evidence.returned(row['ack_op'])} and went when all servers lost power by "
        f"{seconds(row['moment'])}: not yet flushed, as the contract allows; the log was cut at offset {row['cut']}."
    )
    return Explanation(claim, (row["ack_op"],))


_CHECK: Final = Check(
    anomaly=UNFLUSHED_LOSS,
    meaning="an acknowledged value went when all servers lost power before it was flushed",
    views=(
        Table(
            "found_unflushed_loss",
            """
            select e.key, e.value, e.position, e.op as ack_op, r.until as moment, r.cut
            from effects e join log_eras r on e.key = r.key and e.call >= r.since and e.call < r.until
            where e.kind = 'append' and e.outcome = 'ok' and e.ret < r.until and e.position >= r.cut
            """,
        ),
    ),
    evidence=first_of("found_unflushed_loss", "key, position, moment"),
    examined="select count(*) as examined from effects where kind = 'append' and outcome = 'ok'",
    explain=_unflushed,
)

UNFLUSHED: Final = Family(
    name="unflushed", checks=(_CHECK,), applies="select unflushed as examined from log_declared", prepare=prepare
)
"""Only for contracts that allow it. It stands before the log's family, which reads what this one leaves."""
