"""Generations of groups: no member of an old generation commits, and no generation number is given twice.

A generation is over as soon as any member is in the next one. A commit of the old generation that is called later must
be rejected. This is rule U: no operation may have a lower place than an operation that had returned before its call.
The place of an operation is its generation.

- Operations of one generation are not compared with each other, because a member that missed its answer may get it
  again after other members have committed.
- A member may rightly be given an old generation: a replaced coordinator may still give one, but it accepts no commits.
  So calls of acquires are not judged.
- A commit of unknown outcome counts if its number was fetched: it had happened by the return of the first such fetch.

Brokers write the event ``group-generation`` (``key``, ``epoch``) each time a coordinator has stored a generation in the
offsets topic.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, Table, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import (
    EARLIEST,
    RETURNED,
    first_rows_subquery,
    greatest_before,
    order_by,
    row_number,
    select_first,
    select_nearest_pairs,
)

FORGOTTEN_GROUPS: Final = Table(
    "group_forgotten",
    "select key, count(*) as times from events where event = 'group-forgotten' and key is not null group by key",
)
"""Groups that their coordinator has forgotten, and how often. A group without members and offsets is finally forgotten,
and its generations begin again. So each number may be given once more per event. Nothing orders these events among the
actions of clients and of other nodes.
"""

_FIRST: Final = first_rows_subquery("found_zombie_commit", "key, place")

ZOMBIE_COMMIT: Final = Check(
    anomaly="zombie-commit",
    meaning="a member of an earlier generation could still commit",
    views=(
        FORGOTTEN_GROUPS,
        *parse_views(f"""
        -- Commits (`commits` is 1) and acquires, with their generation (`place`). A commit has happened when it is
        -- answered, or when `seen_op` has fetched its number, if that is earlier.
        create table group_steps as
        select e.group as key, e.generation as place, 0 as commits, e.op, min(e.sub) as sub, min(e.call) as call,
            min(e.ret) as ret, cast(null as bigint) as seen_op
        from effects e
            left join group_forgotten g on e.group = g.key
        where e.kind = 'acquire' and e.outcome = 'ok' and e.group is not null and e.generation is not null
            and e.ret is not null and g.key is null
        group by e.group, e.generation, e.op
        union all
        select e.group, e.generation, 1, e.op, min(e.sub), min(e.call),
            min(least({RETURNED}, coalesce(f.ret, {INFINITY}))), min(case when f.ret < {RETURNED} then f.op end)
        from effects e left join (
            select key, value, ret, op from (
                select key, value, ret, op, {row_number(by="key, value", order="ret, op")} as rank from effects
                where kind = 'fetched' and outcome = 'ok' and ret is not null) as fetches
            where rank = 1) f on e.key = f.key and e.value = f.value left join group_forgotten g on e.group = g.key
        where e.kind = 'commit' and e.group is not null and e.generation >= 0 and g.key is null
            and (e.outcome = 'ok' or (e.outcome = 'info' and f.ret is not null))
        group by e.group, e.generation, e.op

        -- For each generation, its first known moment, and the last call of a commit in an earlier generation
        -- (`before`).
        create view group_levels as
        select key, place, first_ret, {greatest_before("last_commit", by="key", order="place")} as before
        from (select key, place, max(case when commits = 1 then call end) as last_commit, min(ret) as first_ret
            from group_steps group by key, place) as folded
        """),
    ),
    violations="select key, place, first_ret, before from group_levels where before > first_ret",
    # `spot` is the generation of each side; `select_nearest_pairs` requires the columns `side`, `moment` and `op`.
    evidence=f"""
        select key, place as first_place, former_op as first_op, former_seen_op as seen_op, spot as late_place,
            op as late_op, seen_op as late_seen_op, contradicted_at, {EARLIEST}
        from ({
        select_nearest_pairs(
            f'''
            select f.key, f.place, 0 as side, a.ret as moment, a.op, a.place as spot, a.seen_op
            from {_FIRST} f join group_steps a on a.key = f.key and a.place = f.place
            where a.ret is not null
            union all
            select f.key, f.place, 1, b.call, b.op, b.place, b.seen_op
            from {_FIRST} f join group_steps b on b.key = f.key and b.place < f.place
            where b.call > f.first_ret and b.commits = 1
            ''',
            "key, place",
            carry="spot, seen_op",
            known_first=True,
        )
    }) as pairs {order_by("key, place")}
        """,
    examined="select count(*) as examined from group_steps where commits = 1",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{late_op} committed to generation {late_place} of {key}, called at {late_op:called}, although {first_op} "
    "had [seen_op?committed to generation {first_place}, which {seen_op} had fetched by {seen_op:returned}|been in "
    "generation {first_place} by {first_op:returned}][; {late_seen_op} fetched it].",
    operations=("first_op", "seen_op", "late_op", "late_seen_op"),
    moments=("contradicted_at",),  # further times of cause and effect
)


GENERATION_REUSE: Final = Check(
    anomaly="generation-reuse",
    meaning="one generation has two different assignments",
    views=(FORGOTTEN_GROUPS,),
    violations="""
        select e.key, e.epoch, count(*) as stored, min(e.node) as one_node, max(e.node) as other_node,
            min(e.time) as since, max(e.time) as moment, max(coalesce(g.times, 0)) as forgotten
        from events e left join group_forgotten g on e.key = g.key
        where e.event = 'group-generation' and e.key is not null and e.epoch is not null
        group by e.key, e.epoch having count(*) > 1 + max(coalesce(g.times, 0))
        """,
    evidence=select_first("found_generation_reuse", "key, epoch"),
    examined="select count(*) as examined from events where event = 'group-generation'",
    claim="Generation {epoch} of {key} was stored {stored} times, by {one_node} and by {other_node}[forgotten>0?, "
    "although the group began again no more than {forgotten} times].",
    time="moment",
    moments=("since",),  # further times of cause and effect
    about=("[forgotten>0?|generation {epoch} of {key}]",),  # subjects of a finding
)
