"""Orphaned partitions (liveness): a partition of a living group has no owner for longer than the rebalance deadline.

A partition counts as owned as long as any member *may* own it. A *hold* is one ownership of a partition by one member.
The group counts as living only while some member certainly acts under a hold of the same topic. An interval counts if
all of these are true throughout:

- No member may own the partition.

  - Ownership may begin at the call of the process's operation *before* the operation that reported the ``acquire``,
    because a consumer that gets a partition in the background reports it later. An acquire of unknown outcome counts,
    too.
  - Ownership ends with the return of its ``release`` (ok), with the return of the operation that noticed the loss, or
    with the owner's death. After an operation of unknown outcome a worker replaces its client. So the owner is dead
    from the worker's next call on.

- Some member lives: operations under a hold of another partition of the topic were answered again and again, with
  pauses of at most a quarter of the deadline.
- No fault is active or recovering. A fault without recovery lasts for ever. A fault without a target, or whose trigger
  never came, does not count.
- No process may have acquired something that it never reports. If a process's last operation has an unknown outcome
  (sends excluded), the process may have acquired something since its worker's previous call.
- Each process of the group that is not dead reports on the group again later. After its last report, a process may own
  anything until it is dead.

An interval ends with a rebalance of the whole group, or when all members have left, because then no member acts under a
hold. A partition without owner for longer than the deadline inside one interval is orphaned. The check misses
partitions that were never owned (the log's drain shows whether they were read), and groups whose members own nothing.
It also misses owners that do not read their partition, which the check ``unseen`` of the log finds.

``ownership_intervals`` creates the tables ``holds`` and ``fault_times``, and explains their columns. The view
``group_declared`` has the contract's rebalance deadline.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import (
    extract_topic,
    first_rows_subquery,
    greatest_before,
    order_by,
    previous,
    sum_so_far,
)


def _select_unowned_times(owned: str) -> str:
    """Returns SQL: the times (``since``, ``until``) when a partition had no owner after it had one."""
    return f"""
        select group_name, key, owned_until as since, since as until from (
            select group_name, key, since,
                {greatest_before("until", by="group_name, key", order="since, until")} as owned_until
            from {owned}) as ordered
        where owned_until < since
        union all
        select group_name, key, max(until), {INFINITY} from {owned}
        group by group_name, key having max(until) < {INFINITY}
        """


# SQL: the latest possible end of a hold `h`, unless its owner died earlier.
_END_OF_HOLD: Final = f"case when h.assignment is null then {INFINITY} else coalesce(h.surely_ended, {INFINITY}) end"


ORPHANED_PARTITION: Final = Check(
    anomaly="orphaned-partition",
    meaning="a partition had no owner for longer than the deadline",
    views=parse_views(f"""
        -- A cheap lower bound of `orphan_owned`: the time from a hold's report to its end. A hold that was reported
        -- after its end closes no gap, so its interval is from 0 to 0. A row whose key is the group's name is a
        -- membership without a partition.
        create view orphan_owned_for_sure as
        select group_name, key, case when until < reported then 0 else reported end as since,
            case when until < reported then 0 else until end as until
        from (
            select h.group_name, h.key, h.reported, least({_END_OF_HOLD}, coalesce(i.died, {INFINITY})) as until
            from holds h
                left join (select process, min(call) as died from ops where outcome = 'info' group by process) i
                on h.process = i.process
            where h.key <> h.group_name and h.group_name <> '') as parts

        -- Groups with long gaps between these intervals. Nearly always there are none, and the following tables are
        -- empty.
        create table orphan_suspects as
        select g.group_name from ({_select_unowned_times("orphan_owned_for_sure")}) g
            cross join group_declared d cross join (select max(call) as latest from ops) o
        where g.since + d.deadline < least(g.until, o.latest)
        group by g.group_name

        -- Operations with the calls of their worker's previous and next operations. Empty if there is no suspect.
        create table orphan_ops as
        select "index" as op, process, call, outcome,
            lag(call) over (partition by worker order by call nulls first, "index" nulls first) as former,
            lead(call) over (partition by worker order by call nulls first, "index" nulls first) as resumed
        from ops cross join (select group_name from orphan_suspects {order_by("group_name")} limit 1) s

        -- `born`: the call of the worker's operation before the process's first one. `died`: infinite for a process
        -- that ended normally.
        create table orphan_deaths as
        select process, min(coalesce(former, 0)) as born,
            min(case when outcome = 'info' then coalesce(resumed, {INFINITY}) else {INFINITY} end) as died
        from orphan_ops group by process

        -- Operations that report on a group, and the call of the previous one (`former`). An operation reports all
        -- partitions that the process got since then.
        create table orphan_reports as
        select t.group_name, t.process, t.op, t.call,
            coalesce({previous("t.call", by="t.group_name, t.process", order="t.call, t.op")}, d.born) as former
        from (
            select e.group as group_name, e.process, e.op, min(e.call) as call
            from effects e join orphan_suspects s on e.group = s.group_name group by e.group, e.process, e.op) t
            join orphan_deaths d on t.process = d.process

        -- Intervals that are not judged; a null `group_name` stands for all groups. The three parts are faults,
        -- processes that may have acquired something without reporting it, and processes past their last report.
        create table orphan_doubts as
        select cast(null as string) as group_name, since, recovered as until from fault_times
        union all
        select cast(null as string), coalesce(t.former, 0), coalesce(t.resumed, {INFINITY})
        from orphan_ops t
            left join (select op from effects where kind = 'append' group by op) s on t.op = s.op
        where t.outcome = 'info' and s.op is null
        union all
        select t.group_name, max(t.call), min(d.died)
        from orphan_reports t join orphan_deaths d on t.process = d.process
        group by t.group_name, t.process

        -- The times in which each owner may have owned what it acquired.
        create table orphan_owned as
        select h.group_name, h.key, h.op, t.former as since, least({_END_OF_HOLD}, d.died) as until
        from holds h
            join orphan_reports t on t.group_name = h.group_name and t.process = h.process and t.op = h.op
            join orphan_deaths d on d.process = h.process
        where h.key <> h.group_name

        -- Long times in which no member may have owned a partition, after one had. The topic of `orders-3` is the key
        -- without the number.
        create table orphan_gaps as
        select g.group_name, {extract_topic("g.key")} as topic, g.key, g.since, g.until
        from ({_select_unowned_times("orphan_owned")}) g cross join group_declared d
        where g.since + d.deadline < g.until

        -- Short intervals from one answered operation under a hold to the next, only for groups with gaps.
        create table orphan_lives as
        select l.group_name, {extract_topic("l.key")} as topic, l.since, l.until from (
            select group_name, key, greatest(begun, coalesce(former, begun)) as since, call as until from (
                select h.group_name, h.key, h.begun, e.call,
                    {previous("e.call", by="h.group_name, h.key, h.process, h.assignment", order="e.call, e.op")}
                        as former
                from holds h join (
                    select a.group as group_name, a.key, a.process, a.assignment, a.op, min(a.call) as call
                    from effects a join (select group_name from orphan_gaps group by group_name) s
                        on a.group = s.group_name
                    where a.assignment is not null and a.ret is not null
                    group by a.group, a.key, a.process, a.assignment, a.op) e
                    on e.group_name = h.group_name and e.key = h.key and e.process = h.process
                    and e.assignment = h.assignment
                where h.begun is not null and e.call <= coalesce(h.given_up, e.call)) as named) l
            cross join group_declared d
        where l.since < l.until and 4 * (l.until - l.since) <= d.deadline

        -- The groups and topics with a row in `orphan_gaps`.
        create table orphan_topics as
        select group_name, topic from orphan_gaps group by group_name, topic

        -- Moments at which a group's state changes. `living`, `doubts`: how many rows of `orphan_lives` and of
        -- `orphan_doubts` begin at the moment, minus those that end. `counts`: from this moment to the next one, a
        -- member certainly lives, and nothing prevents a judgement.
        create view orphan_states as
        select group_name, topic, moment,
            lead(moment) over (partition by group_name, topic {order_by("moment")}) as next_moment,
            case when {sum_so_far("living", by="group_name, topic", order="moment")} > 0
                and {sum_so_far("doubts", by="group_name, topic", order="moment")} = 0 then 1 else 0 end as counts
        from (
            select group_name, topic, moment, cast(sum(living) as bigint) as living,
                cast(sum(doubts) as bigint) as doubts
            from (
                select group_name, topic, since as moment, 1 as living, 0 as doubts from orphan_lives
                union all select group_name, topic, until, -1, 0 from orphan_lives
                union all
                select t.group_name, t.topic, d.since, 0, 1 from orphan_topics t
                    join orphan_doubts d on coalesce(d.group_name, t.group_name) = t.group_name
                union all
                select t.group_name, t.topic, d.until, 0, -1 from orphan_topics t
                    join orphan_doubts d on coalesce(d.group_name, t.group_name) = t.group_name
                where d.until < {INFINITY}) as changes
            group by group_name, topic, moment) as folded

        -- Moments, with the number of the stretch to which they belong: an uninterrupted sequence of states that count.
        create view orphan_begins as
        select group_name, topic, moment, next_moment, counts,
            {sum_so_far("begins", by="group_name, topic", order="moment")} as stretch
        from (
            select group_name, topic, moment, next_moment, counts, case when counts = 1 and coalesce(
                {previous("counts", by="group_name, topic", order="moment")}, 0) = 0 then 1 else 0 end
                as begins
            from orphan_states) as compared

        -- Intervals in which a member certainly lives, and that are judged.
        create table orphan_stretches as
        select group_name, topic, min(moment) as since, max(next_moment) as until from orphan_begins
        where counts = 1 and next_moment is not null group by group_name, topic, stretch
        """),
    violations="""
        select g.group_name, g.key, greatest(g.since, s.since) as since,
            least(g.until, s.until) as until, g.since as freed, g.until as taken
        from orphan_gaps g join orphan_stretches s on g.group_name = s.group_name and g.topic = s.topic
            cross join group_declared d
        where greatest(g.since, s.since) + d.deadline < least(g.until, s.until)
        """,
    evidence=f"""
        select f.group_name, f.key, f.since, f.until,
            min(d.deadline) as deadline, min(b.op) as last_op, min(a.op) as next_op
        from {first_rows_subquery("found_orphaned_partition", "group_name, key, since")} f
            cross join group_declared d
            left join orphan_owned b on b.group_name = f.group_name and b.key = f.key and b.until = f.freed
            left join orphan_owned a on a.group_name = f.group_name and a.key = f.key and a.since = f.taken
        group by f.group_name, f.key, f.since, f.until
        {order_by("f.group_name, f.key, f.since")}
        """,
    examined="select count(*) as examined from holds where key <> group_name and group_name <> ''",
    claim="No one of {group_name} owned {key} from {since:time} to {until:time}, {until-since:time}, while others of "
    "the group were there; the contract's deadline is {deadline:time}. The last owner was {last_op}.",
    operations=("last_op", "next_op"),
    time="until",
    needs_end=True,  # proves nothing about an interrupted run
)
