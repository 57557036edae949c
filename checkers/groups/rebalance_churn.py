"""Rebalance churn: a group keeps its generation if no member comes or goes.

A group may rebalance for ever although everything is read: each member takes over, reads a little and is asked to join
again. So after half of the contract's group deadline since the last change, there must be no new generation. Changes
are:

- for any group: a fault, until it is healed and its targets have recovered; a topic created, extended, deleted or
  moved;
- for one group: a process that appears in it for the first time, and a release by a member;
- for one group: an operation after which a member may be gone or back. Such an operation reports nothing (the process
  left, or was silent), or only lost partitions (the member died). Or its outcome is unknown, so a new process replaces
  this one.

The check counts the generations that members report (``acquire``) in the drain, while members poll with pauses of at
most a quarter of the deadline (``group_convergence``). A generation counts if it is above all generations known in the
first half of the deadline. ``MIN_GENERATIONS`` of them are an anomaly: a member may have learned late of a single one,
but between two of them the group was asked to join again. The nodes' event logs are not used, because they have the
times of the nodes' own clocks. Groups that ZooKeeper coordinates (``zookeeper_groups``) have no generations.

``rest_quiet`` has the time at which the last fault was healed and recovered (``liveness.snapshots``). Views named
``..._declared`` hold values of the contract (``judging.history_views``).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.groups.group_convergence import POLL_STRETCHES
from assay.checkers.sql_idioms import order_by, select_first

MIN_GENERATIONS: Final = 2
"""Minimum number of new generations in a finding."""


RESTLESS_GROUP: Final = Check(
    anomaly="restless-group",
    meaning="a group kept starting new generations, although no member joined or left",
    views=(
        *POLL_STRETCHES,
        *parse_views(f"""
        -- The time at which each process was first seen in its group.
        create view restless_members as
        select e.process, e.group as group_name, min(e.ret) as joined from effects e
        where e.group is not null and e.ret is not null group by e.process, e.group

        -- Which kinds of rows each operation reports: 1 if it has a row of this kind.
        create view restless_rows as
        select e.op, max(case when e.kind = 'release' then 1 else 0 end) as released,
            max(case when e.kind = 'lost' then 1 else 0 end) as lost,
            max(case when e.kind in ('lost', 'release') then 0 else 1 end) as others
        from effects e group by e.op

        -- Times at which a member may have come, gone or returned. `resumed`: the worker's next call.
        create view restless_member_changes as
        select o.process, case when o.outcome = 'info' then o.resumed else o.ret end as time from (
            select "index" as op, process, outcome, ret, coalesce(
                lead(call) over (partition by worker {order_by('call, "index"')}), {INFINITY}) as resumed
            from ops) o left join restless_rows r on r.op = o.op
        where o.outcome = 'info' or r.op is null or r.released = 1
            or (o.outcome = 'ok' and r.lost = 1 and r.others = 0)

        -- The last change that may be a reason for a rebalance.
        create table restless_changes as
        select group_name, max(time) as time from (
            select group_name, joined as time from restless_members
            union all
            select m.group_name, t.time from restless_members m join restless_member_changes t on t.process = m.process
            union all
            select m.group_name, a.time from (select group_name from restless_members group by group_name) m
                cross join (
                    select coalesce(max(case when outcome = 'ok' then ret else {INFINITY} end), 0) as time
                    from effects where outcome <> 'fail' and kind in ('topic-create', 'topic-delete',
                        'partitions-add', 'move')) a) as changes
        group by group_name

        -- The time from the last change to the end of the group's last stretch of polls (`settle_stretches`, see
        -- `group_convergence`).
        create view restless_intervals as
        select s.group_name, greatest(c.time, q.since, s.since) as changed, s.until, d.group_deadline as deadline
        from settle_stretches s join restless_changes c on c.group_name = s.group_name
            join (select group_name, max(until) as until from settle_stretches group by group_name) l
            on l.group_name = s.group_name and l.until = s.until
            cross join rest_quiet q cross join deadlines_declared d

        -- Intervals that are long enough, with the highest generation known in their first half.
        create table restless_judged as
        select t.group_name, t.changed, t.until, t.deadline, coalesce(max(case when
            2 * (e.call - t.changed) < t.deadline then e.generation end), -1) as known
        from restless_intervals t join effects e on e.group = t.group_name
        where t.changed < t.until and 2 * (t.until - t.changed) > t.deadline
            and e.kind = 'acquire' and e.outcome = 'ok' and e.generation is not null
        group by t.group_name, t.changed, t.until, t.deadline
        """),
    ),
    violations=f"""
        select group_name as key, changed, deadline, count(*) as generations, max(generation) as highest,
            min(op) as first_op, max(op) as last_op, min(call) as since, max(call) as until
        from (
            select j.group_name, j.changed, j.deadline, e.generation, min(e.op) as op, min(e.call) as call
            from restless_judged j join effects e on e.group = j.group_name
            where e.kind = 'acquire' and e.outcome = 'ok' and e.generation > j.known and e.call <= j.until
            group by j.group_name, j.changed, j.deadline, e.generation) as fresh
        group by group_name, changed, deadline having count(*) >= {MIN_GENERATIONS}
        """,
    evidence=select_first("found_restless_group", "key"),
    examined="select count(*) as examined from restless_judged",
    claim="Members of {key} were given {generations} new generations, up to {highest}, from {since:time} to "
    "{until:time}, although no member had come or gone and no fault been in force for {since-changed:time} before; "
    "the contract's deadline is {deadline:time}.",
    operations=("first_op", "last_op"),
    time="until",
    needs_end=True,  # proves nothing about an interrupted run
    optional=True,  # a run may end before its members have been at rest for so long
)

REBALANCE_CHURN: Final = family_of(
    RESTLESS_GROUP,
    applies="effects e where e.kind = 'acquire' and e.group is not null and e.generation is not null",
    kinds=("acquire",),
)
