"""Group convergence: after the last heal a group owns every partition and reads it to its end by the group deadline.

At its end a run sends one last record to each partition (the sentinel). Then, in the drain, the members of a group poll
until they are past it.

1. A group must read every sentinel of the topics that it ever owned. If it never owned anything and there is only one
   topic, it must read all sentinels.
2. The clock starts when the sentinel is acknowledged, the group has polled in the drain, and all faults are healed and
   recovered. Also, each worker with an operation of unknown outcome (sends excluded) must have made another call. It
   makes that call with a new member, so the old member can do nothing any more.
3. The clock runs only while members poll: operations of the group in the drain were answered, with pauses of at most a
   quarter of the deadline.

Nothing is required of a single member, because surplus members rightly own nothing. If members may give up after a
number of retries, the contract must tolerate this anomaly. The check does not judge a group without a drain.

``rest_quiet`` has the time at which the last fault was healed and recovered (``liveness.snapshots``).
``deadlines_declared`` has the contract's deadlines.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import OFFSET, Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.liveness.snapshots import QUIET
from assay.checkers.sql_idioms import extract_topic, first_rows_subquery, order_by, previous, sum_so_far

POLL_STRETCHES: Final = (
    QUIET,
    *parse_views(f"""
    -- Operations of members at the end of the run that were answered.
    create table settle_polls as
    select e.group as group_name, e.op, min(e.call) as call from effects e
    where e.phase = 'drain' and e.group is not null and e.ret is not null group by e.group, e.op

    -- Times in which a group polled without a long pause.
    create view settle_stretches as
    select group_name, min(call) as since, max(call) as until from (
        select group_name, call, {sum_so_far("begins", by="group_name", order="call, op")} as stretch from (
            select p.group_name, p.call, p.op, case when 4 * (p.call - coalesce(
                {previous("p.call", by="p.group_name", order="p.call, p.op")}, p.call)) > d.group_deadline
                then 1 else 0 end as begins
            from settle_polls p cross join deadlines_declared d) as marked) as numbered
    group by group_name, stretch
    """),
)


UNSETTLED_GROUP: Final = Check(
    anomaly="unsettled-group",
    meaning="a group had not read every partition to its end by the deadline after the last heal",
    views=(
        *POLL_STRETCHES,
        *parse_views(f"""
        -- The acknowledged sentinels, with the returns of their sends.
        create table settle_sentinels as
        select key, {extract_topic("key")} as topic, position, op, min(ret) as ret from effects
        where kind = 'append' and phase = 'sentinel' and outcome = 'ok' and position is not null and ret is not null
        group by key, position, op

        -- The topics that each group ever owned, or the only topic if it never owned any (rule 1). An `acquire` whose
        -- key is the group itself shows a member that owns nothing.
        create view settle_owned as
        select e.group as group_name, {extract_topic("e.key")} as topic from effects e
        where e.kind = 'acquire' and e.group is not null and e.key <> e.group group by e.group, {extract_topic("e.key")}
        union
        select p.group_name, t.topic from (
            select p.group_name from settle_polls p
                left join (
                    select e.group as group_name from effects e
                    where e.kind = 'acquire' and e.group is not null and e.key <> e.group group by e.group) o
                on o.group_name = p.group_name
            where o.group_name is null group by p.group_name) p
            cross join (select min(topic) as topic, max(topic) as other from settle_sentinels) t
        where t.topic = t.other

        -- The time after which no operation of unknown outcome can have an effect (rule 2).
        create view settle_doubts as
        select coalesce(max(resumed), 0) as since from (
            select "index" as op, outcome, coalesce(
                lead(call) over (partition by worker {order_by('call, "index"')}), {INFINITY}) as resumed
            from ops where phase <> 'main') o
            left join (select op from effects where kind = 'append' group by op) s on s.op = o.op
        where o.outcome = 'info' and s.op is null

        -- The sentinels that each group must read, and the interval in which this can be judged.
        create table settle_expected as
        select t.group_name, s.key, s.position, s.op, greatest(s.ret, t.since, q.since, b.since) as since, t.until
        from settle_sentinels s
            join settle_owned o on o.topic = s.topic
            join settle_stretches t on t.group_name = o.group_name and t.until > s.ret
            cross join rest_quiet q cross join settle_doubts b

        -- The time at which each group had read a sentinel.
        create view settle_reached as
        select s.op, e.group as group_name, min(e.ret) as ret from settle_sentinels s
            join effects e on e.key = s.key and e.position > s.position
        where e.kind = 'observe-end' and e.outcome = 'ok' and e.phase = 'drain' and e.group is not null
        group by s.op, e.group
        """),
    ),
    violations="""
        select x.group_name, x.key, x.position, x.op, x.since, least(x.until, coalesce(r.ret, x.until)) as until
        from settle_expected x cross join deadlines_declared d
            left join settle_reached r on r.op = x.op and r.group_name = x.group_name
        where x.until - x.since >= d.group_deadline
            and (r.ret is null or r.ret - x.since > d.group_deadline)
        """,
    # `given`: how often the partition was given to a member in this time.
    evidence=f"""
        select f.group_name, f.key, f.position, f.op as sentinel_op,
            f.since, f.until, min(d.group_deadline) as deadline,
            count(case when a.call >= f.since and a.call <= f.until then 1 end) as given,
            max(case when a.call <= f.until then a.op end) as owner_op
        from {first_rows_subquery("found_unsettled_group", "group_name, key, position, op")} f
            cross join deadlines_declared d
            left join effects a on a.kind = 'acquire' and a.outcome = 'ok' and a.key = f.key and a.group = f.group_name
        group by f.group_name, f.key, f.position, f.op, f.since, f.until
        {order_by("f.group_name, f.key, f.position, f.op")}
        """,
    examined="select count(*) as examined from settle_expected",
    # [, last ...|, and had no owner] is the first text, or the second one if `owner_op` is null.
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="No member of {group_name} read {key} up to offset {position}, acknowledged at {sentinel_op:returned}, by "
    "{until:time}, though members polled all the time and no fault was in force since {since:time}; the contract's "
    "deadline is {deadline:time}. {key} was given out {given} times in that time[, last given to {owner_op}|, and had "
    "no owner].",
    time="until",
    about=(OFFSET,),  # findings at one offset may have one cause
    explained_by=("stuck-reader",),
    needs_end=True,  # proves nothing about an interrupted run
)
