"""Durability of unflushed logs: the records that a log may lose if all its servers lose power together.

A server that fsyncs every M messages holds up to M - 1 records of a partition in memory alone. The records are safe as
long as one server that has them keeps its power. If all servers lose power, each partition is cut to a prefix. The
contract may allow this (``Contract.unflushed``, M - 1). An allowed loss is reported as ``unflushed-loss``. All other
checks then treat the lost records as sent with an unknown outcome and never read. For them the log before the loss ends
at the cut, and consumers start again after it.

Conditions of an allowed loss:

- A power loss counts when it was injected, even without proof that it took effect. A proof requires more than the loss,
  for example that a process ended in the middle of an fsync.
- Its targets must be all servers that serve at that moment. A server whose process another fault has ended or stopped
  does not count, because it may not be in any in-sync set.
- At most M - 1 records of a partition may go, counted from the last record known before, by a send or by a poll. Other
  checks find further losses.
- The records must go together. No cut is granted if a record at or above the cut is seen after the loss, at its offset
  or at a higher one.

The age of unflushed records is not judged, because the duration of an fsync depends on the disk.

A record is gone if one of these holds:

- A poll called after the loss passed its offset without it.
- An operation that ended after the loss shows another value there.
- The drain ended at or below it.

Some records are known only because a client asked for the log end before the loss. They are gone if a record sent after
the loss has an offset below that end, or if a lower log end was reported later. A run that was interrupted may lack
such evidence. Then no cut is granted.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from assay.checkers.check import Check, Family
from assay.checkers.engine import INFINITY, Engine, Row
from assay.checkers.engine.base import quote
from assay.checkers.judging.history_views import quote_key
from assay.checkers.sql_idioms import INJECTED, order_by, select_first
from assay.checkers.times import NANOSECONDS
from assay.harness.core.history.data_sets import EFFECTS

UNFLUSHED_LOSS: Final = "unflushed-loss"
ERA: Final = 1 << 32
"""Added to a poll's assignment once for each earlier cut, so that no sequence of polls of one assignment crosses a
cut."""
_ABSENCES: Final = f"""
    select j.targets, j.moves_replicas, coalesce(n.not_before, j.time) as called, j.time as since,
        coalesce(h.time, {INFINITY}) as until, h.id is not null as over,
        coalesce(j.pauses_process and j.gradual, false) as one_by_one, j.detail as injected, h.detail as healed
    from (select * from faults where {INJECTED}) j
        left join (select id, not_before from faults where phase = 'intended') n on j.id = n.id
        left join (select id, time, detail from faults where phase = 'healed') h on j.id = h.id
    where j.ends_process or j.pauses_process
    """
"""SQL: the faults that ended or paused servers, from ``since`` to ``until``. ``called``: the earliest begin of the
fault. ``one_by_one``: its targets pause at different moments. ``injected``, ``healed``: the details of these rows, in
JSON.
"""
RESUME_MARGIN: Final = NANOSECONDS
"""Nanoseconds before a heal in which events do not count, because the process may have written them as it resumed."""
# SQL of `log_eras` if there was no cut.
NO_ERAS: Final = "select cast(null as string) as key, 0 as since, 0 as until, 0 as cut, 0 as era where 1 = 0"


@dataclass(frozen=True)
class LogCut:
    """A cut of one log at ``moment`` (nanoseconds): the log of ``key`` then ended at ``offset``."""

    key: str
    moment: int
    offset: int


def find_cuts(engine: Engine, unflushed: int) -> list[LogCut]:
    """Returns the granted cuts, by key and moment."""
    granted: list[LogCut] = []
    for moment in _find_power_losses(engine):
        granted += _find_cuts_at(engine, moment, unflushed, granted)
    return sorted(granted, key=lambda cut: (cut.key, cut.moment))


def _find_power_losses(engine: Engine) -> list[int]:
    """Returns the moments at which all servers were, or may have been, without power.

    A loss counts without proof, and even if its injection failed, because servers may have lost power all the same. If
    servers go down one after the other, only the last server loses power (``outage-power-loss``).
    """
    find_serving = _make_serving_lookup(engine)
    rows = engine.rows(
        f"""
        select f.targets, f.time as moment, coalesce(f.gradual, false) as gradual
        from (select * from faults where {INJECTED}) f where f.loses_unsynced {order_by("f.time")}
        """
    )
    losses = [(row["moment"], _parse_names(row["targets"]), row["gradual"]) for row in rows]
    return [
        moment
        for moment, names, gradual in losses
        if (servers := find_serving(moment)) and servers <= names and not (gradual and len(names) > 1)
    ]


def _make_serving_lookup(engine: Engine) -> Callable[[int], set[str]]:
    """Returns a function that finds the servers that serve at a moment.

    A server serves if it has written an event by then and no other fault stops it. A server that a fault added does not
    serve after the heal, which removes it. A fault that pauses its targets one by one does not pause a target before
    the last event that the target wrote.
    """
    rows = engine.rows("select node, min(time) as first from events group by node")
    first: dict[str, int] = {row["node"]: row["first"] for row in rows}
    absent: dict[str, list[tuple[int, int]]] = {}
    for row in engine.rows(_ABSENCES):
        last = _find_last_events(engine, row)
        for name in _parse_names(row["targets"]) & first.keys():
            added = row["moves_replicas"] and row["over"] and row["called"] <= first[name]
            since = max(row["since"], last.get(name, 0))
            absent.setdefault(name, []).append((since, INFINITY if added else row["until"]))

    def find_serving(moment: int) -> set[str]:
        return {
            name
            for name, since in first.items()
            if since <= moment and not any(begin < moment < end for begin, end in absent.get(name, ()))
        }

    return find_serving


def _find_last_events(engine: Engine, fault: Row) -> dict[str, int]:
    """Returns, by node, the time of the last event of the incarnation that ran when a one-by-one pause began.

    The process was not paused before that event, because a paused process does not continue before the heal.
    """
    if not (fault["one_by_one"] and fault["over"]):
        return {}
    injected, healed = json.loads(fault["injected"]), json.loads(fault["healed"])
    # `began`: nanoseconds since the run began. `at`: seconds of the conductor, so only differences of it are used.
    if not {"began", "at"} <= injected.keys() or "at" not in healed:  # a history of another tool
        return {}
    began = injected["began"]
    until = began + int((healed["at"] - injected["at"]) * NANOSECONDS) - RESUME_MARGIN
    lives = engine.rows(
        f"""
        select node, incarnation, min(time) as first, max(time) as last from events
        where incarnation <> 0 and time < {until} group by node, incarnation {order_by("first")}
        """
    )
    return {row["node"]: row["last"] for row in lives if row["first"] <= began}


def _parse_names(targets: str) -> set[str]:
    """Parses a JSON list of targets. A history of another tool may have the name of one node instead."""
    try:
        found = json.loads(targets)
    except (ValueError, RecursionError):
        found = None
    return set(map(str, found)) if isinstance(found, list) else {targets}


def _find_cuts_at(engine: Engine, moment: int, unflushed: int, granted: Sequence[LogCut]) -> list[LogCut]:
    """Returns the cuts of one power loss. ``granted``: the cuts of earlier power losses."""
    gone: dict[str, int] = {}
    hidden: dict[str, list[int]] = {}
    found: dict[str, int] = {}
    for row in engine.rows(_select_tail(moment, unflushed, granted)):
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
    for row in engine.rows(_select_ends(moment, unflushed, granted)):
        key, position = row["key"], row["position"]
        if position > found.get(key, -1):
            gone[key] = min(position, gone.get(key, position))
    return [LogCut(key, moment, offset) for key, offset in gone.items() if found.get(key, -1) < offset]


def _select_ends(moment: int, unflushed: int, granted: Sequence[LogCut]) -> str:
    """Returns SQL: offsets at which a log continued or ended after the moment, below its earlier end.

    The offsets are at most ``unflushed`` below the earlier end.
    """
    exclusion = "".join(
        f" and not (key = {quote_key(cut.key)} and position > {cut.offset} and ret < {cut.moment})" for cut in granted
    )
    return f"""
        with ends as (
            select key, max(position) as ended from effects
            where kind = 'end' and outcome = 'ok' and ret < {moment}{exclusion} group by key),
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


def _select_tail(moment: int, unflushed: int, granted: Sequence[LogCut]) -> str:
    """Returns SQL: the last records known before the moment, and their fate.

    - ``gone``: the record is certainly gone.
    - ``hidden``: a log end at or below the record was reported. The record may be gone, or the end may lag.
    - ``found``: the highest offset at which the record's value was shown afterwards.

    ``late`` marks a record whose send was called before the moment and returned after it:

    - If the record is missing afterwards, it may have been stored before the moment, and is judged like the others.
    - If the record is there, it may have been stored after the moment. So ``found`` is null.
    - If another record has its offset, one of the two records is gone.
    """
    exclusion = "".join(
        f" and not (key = {quote_key(cut.key)} and position >= {cut.offset} and ret < {cut.moment})" for cut in granted
    )
    return f"""
        with known as (
            select key, value, position, min(case when ret < {moment} then 0 else 1 end) as late from effects
            where kind in ('append', 'observe') and outcome = 'ok' and value is not null and position is not null
                and (ret < {moment}{exclusion} or (kind = 'append' and call < {moment} and ret >= {moment}))
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


def divide_into_eras(granted: list[LogCut]) -> list[tuple[str, int, int, int, int]]:
    """Returns each key's intervals between cuts.

    A tuple has the key, since, until (exclusive), the lowest offset of all later cuts, and the number from 0.
    """
    eras = []
    for key in sorted({cut.key for cut in granted}):
        cuts = sorted((cut for cut in granted if cut.key == key), key=lambda cut: cut.moment)
        edges = [0, *(cut.moment for cut in cuts), INFINITY]
        for era, (since, until) in enumerate(itertools.pairwise(edges)):
            eras.append((key, since, until, min([cut.offset for cut in cuts[era:]], default=INFINITY), era))
    return eras


def _rewrite_effects() -> str:
    """Returns SQL of ``effects`` without records at or above a cut; the columns are unchanged."""
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
    columns = ", ".join(f"{changed.get(name, f'e.{name}')} as {quote(name)}" for name in EFFECTS.names)
    return f"""
        select {columns}
        from effects e left join log_eras r on e.key = r.key and e.call >= r.since and e.call < r.until
        where r.key is null or e.kind not in ('observe', 'look-up') or e.position is null or e.position < r.cut
        """


def prepare(engine: Engine) -> list[str]:
    """Creates ``log_eras``, and replaces ``log_effects`` for the log checks, which are judged later.

    Returns no reasons not to pass.
    """
    unflushed = int(engine.rows("select unflushed from log_declared")[0]["unflushed"])
    eras = divide_into_eras(find_cuts(engine, unflushed))
    values = ", ".join(f"({quote_key(key)}, {since}, {until}, {cut}, {era})" for key, since, until, cut, era in eras)
    engine.view(
        "log_eras",
        f"with named (key, since, until, cut, era) as (values {values}) "
        "select key, cast(since as bigint) as since, cast(until as bigint) as until, cast(cut as bigint) as cut, "
        "cast(era as bigint) as era from named"
        if eras
        else NO_ERAS,
    )
    if eras:
        engine.table("log_cut_effects", _rewrite_effects())
        engine.view("log_effects", "select * from log_cut_effects")
    return []


_UNFLUSHED_CHECK: Final = Check(
    anomaly=UNFLUSHED_LOSS,
    meaning="an acknowledged value was lost when all servers lost power before it was flushed",
    violations="""
        select e.key, e.value, e.position, e.op as ack_op, r.until as moment, r.cut
        from effects e join log_eras r on e.key = r.key and e.call >= r.since and e.call < r.until
        where e.kind = 'append' and e.outcome = 'ok' and e.ret < r.until and e.position >= r.cut
        """,
    evidence=select_first("found_unflushed_loss", "key, position, moment"),
    examined="select count(*) as examined from effects where kind = 'append' and outcome = 'ok'",
    claim="value {value} at offset {position} of {key} was acknowledged to {ack_op} at {ack_op:returned} and went "
    "when all servers lost power by {moment:time}: not yet flushed, as the contract allows; the log was cut at offset "
    "{cut}.",
)

UNFLUSHED: Final = Family(
    name="unflushed",
    checks=(_UNFLUSHED_CHECK,),
    applies="select unflushed as examined from log_declared",
    prepare=prepare,
)
"""Applies only to contracts that allow the loss. The family must precede ``LOG``, which reads ``log_effects``."""
