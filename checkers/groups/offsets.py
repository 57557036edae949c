"""Offsets of groups that only move forward: no offset goes back or is lost.

A workload records its offset calls in ``effects`` as follows (``key`` names group and partition, ``group`` the group):

- ``advance``: a commit of ``position`` by a client that only reads forward and never seeks; outcome ok, fail or info.
- ``resume``: a new owner was given ``position`` to begin at. If nothing had been committed, it is the log's start.

An offset becomes a *floor* when its commit is acknowledged, or when a new owner is given it. No later call may begin or
commit below a floor. This is rule U, with the offset as the place of an operation: no operation may have a lower place
than an operation that had returned before its call.

A ``resume`` is not judged if a late or unknown commit can explain it:

- A commit of this offset had an unknown outcome, so it may have taken effect late, after commits of higher offsets.
- A commit may be missing from the history, in two cases. An ``advance`` of unknown outcome has no position. Or an
  earlier owner has an operation of unknown outcome without effects. That owner cannot have committed an offset below
  the one at which it began.

After such a late commit the group continues from the lower offset. So a new *era* begins, and floors of the former era
no longer count. Unlike a register's values, offsets must never go back, and one offset may be committed several times.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, Family, parse_views
from assay.checkers.sql_idioms import (
    EARLIEST,
    ROWS_BEFORE,
    first_rows_subquery,
    greatest_before,
    order_by,
    select_nearest_pairs,
    total_of,
)

_FIRST: Final = first_rows_subquery("found_offset_regression", "key, place, era")

OFFSET_REGRESSION: Final = Check(
    anomaly="offset-regression",
    meaning="a group's offset went back, or was lost",
    views=parse_views(f"""
        -- Commits that may have happened unrecorded: at time `since` or later, at offset `least` or above. `h`: the
        -- offset at which each owner of a partition began.
        create table offset_doubts as
        select key, call as since, cast(0 as bigint) as least from effects
        where kind = 'advance' and outcome = 'info' and position is null
        union all
        select h.key, min(o.call), h.least
        from (select process, "index" as op, call from ops where outcome = 'info') o
            left join (select op from effects group by op) r on r.op = o.op
            join (
                select concat(e.group, '/', e.key) as key, e.process, min(coalesce(b.position, 0)) as least
                from effects e left join (
                    select op, key, min(position) as position from effects
                    where kind = 'resume' and outcome = 'ok' and position is not null group by op, key) b
                    on b.op = e.op and b.key = concat(e.group, '/', e.key)
                where e.kind = 'acquire' and e.group is not null group by concat(e.group, '/', e.key), e.process) h
            on h.process = o.process
        where r.op is null group by h.key, h.process, h.least

        -- Each `resume` that a commit missing from the history can explain.
        create table offset_late as
        select e.key, e.op
        from effects e join offset_doubts d on e.key = d.key and e.position >= d.least and d.since < e.ret
        where e.kind = 'resume' and e.outcome = 'ok' group by e.key, e.op

        -- Acknowledged commits and begins; `place` is the offset. `judged` 0: a late or unknown commit can explain it.
        -- `u`: the offsets of commits of unknown outcome.
        create table offset_steps as
        select e.key, e.position as place, e.op, e.kind, e.call, e.ret,
            case when e.kind = 'resume' and (u.key is not null or l.key is not null) then 0 else 1 end as judged
        from effects e left join (
            select key, position from effects where kind = 'advance' and outcome = 'info' and position is not null
            group by key, position) u on e.key = u.key and e.position = u.position
            left join offset_late l on e.key = l.key and e.op = l.op
        where e.kind in ('advance', 'resume') and e.outcome = 'ok' and e.ret is not null and e.position is not null

        -- Late commits that took effect: each ``resume`` that is not judged and lies below an offset that was known
        -- before its call. ``depth`` orders the offsets from the highest down (``sql_idioms``).
        create table offset_resets as
        select s.key, s.call, s.ret from offset_steps s join (
            select key, place, min(first_ret) over (partition by key {order_by("depth")}
                {ROWS_BEFORE}) as higher
            from (select key, place, min(-1 - place) as depth, min(ret) as first_ret
                from offset_steps group by key, place) as folded
            ) h on s.key = h.key and s.place = h.place
        where s.judged = 0 and h.higher < s.call

        -- A call is judged in its ``era``: the number of resets called no later than this call. It is a floor in its
        -- ``floor_era``: the number of resets that had returned before this call. So during a reset, a call is judged
        -- in the new era, and is a floor in the old era.
        create table offset_eras as
        select s.key, s.place, s.op, s.kind, s.call, s.ret,
            s.judged, cast(sum(case when r.ret < s.call then 1 else 0 end) as bigint) as floor_era,
            cast(sum(case when r.call <= s.call then 1 else 0 end) as bigint) as era
        from offset_steps s left join offset_resets r on s.key = r.key
        group by s.key, s.place, s.op, s.kind, s.call, s.ret, s.judged

        -- For each offset of an era: when it was first known, and the latest judged call below it.
        create view offset_levels as
        select key, era, place, first_ret, {greatest_before("last_call", by="key, era", order="place")} as before
        from (
            select key, era, place, max(call) as last_call, min(ret) as first_ret from (
                select key, era, place, call, cast(null as bigint) as ret from offset_eras where judged = 1
                union all
                select key, floor_era, place, cast(null as bigint), ret from offset_eras) as apart
            group by key, era, place) as folded
        """),
    violations="select key, era, place, first_ret, before from offset_levels where before > first_ret",
    # `side`, `moment` and `op` are columns that `select_nearest_pairs` requires; `spot` is the offset of each side.
    evidence=f"""
        select key, place, era, former_op as first_op, spot as late_place, op as late_op, kind as late_kind,
            contradicted_at, {EARLIEST}
        from ({
        select_nearest_pairs(
            f'''
            select f.key, f.place, f.era, 0 as side, a.ret as moment, a.op, a.kind, a.place as spot
            from {_FIRST} f join offset_eras a on a.key = f.key and a.floor_era = f.era and a.place = f.place
            union all
            select f.key, f.place, f.era, 1, b.call, b.op, b.kind, b.place
            from {_FIRST} f join offset_eras b on b.key = f.key and b.era = f.era and b.place < f.place
            where b.call > f.first_ret and b.judged = 1
            ''',
            "key, place, era",
            carry="kind, spot",
            known_first=True,
        )
    }) as pairs {order_by("key, place, era")}
        """,
    examined="select count(*) as examined from offset_steps where judged = 1",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{late_op} [late_kind=resume?had to begin|committed] at offset {late_place} of {key}, called at "
    "{late_op:called}, although {place} had been known to {first_op} by {first_op:returned}.",
    operations=("first_op", "late_op"),
    moments=("contradicted_at",),  # further times of cause and effect
)

OFFSETS: Final = Family(
    name="offsets",
    checks=(OFFSET_REGRESSION,),
    applies=f"""
        select {total_of("many")} as examined from effect_kinds
        where kind in ('advance', 'resume')
        """,
)
