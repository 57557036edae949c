"""Retention of committed offsets: they are there until they expire, gone soon after, and never return.

A workload records itself in ``effects`` as follows (``key`` names group and partition, ``group`` the group):

- ``keep``: a commit, with its unique number as ``value``. ``retention_ms`` is the time for which it must be kept while
  the group has no members. A member's commit also has ``generation`` and ``owner``.
- ``kept``: a read of the committed offset; ``value`` is the number of the commit that it found, or null.
- ``part``: a client has left the group ``key`` (it departs), or was no member.

A commit *must stay* for its retention time, counted from its call. A member's commit must also stay until the call of
this member's last accepted commit in this generation, because until then the group had a member. A commit of unknown
outcome may take effect at any time after its call; a rejected commit never does. If one operation made several commits
of one key in order (``sub``), only the last acknowledged one is in place when the operation returns.

- ``early-expiry``: a read found nothing, although the last commit before it had to stay until the read returned, and so
  had each commit that may have come after that one.
- ``revived-offset``: a read found a commit again after another operation ended it. This operation is a read that found
  nothing, or a later commit. It was called after the first commit was in place.
- ``overdue-offset``: a read at the end of the run found a commit after the contract's retention deadline. The deadline
  counts from the latest of these: the key's last commit need no longer stay, the group's last commit, the last
  departure of a client, the last heal.

Coordinators expire offsets by their wall clocks, so a contract must tolerate these anomalies under a wrong clock.

``rest_quiet`` has the time at which the last fault was healed and recovered (``liveness.snapshots``). Views named
``..._declared`` hold values of the contract (``judging.history_views``).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, Family, parse_views
from assay.checkers.liveness.snapshots import QUIET
from assay.checkers.sql_idioms import RETURNED, first_rows_subquery, nanoseconds, order_by, select_first

SLACK: Final = 2_000_000
"""Nanoseconds of tolerance, because times in the offsets topic are whole milliseconds."""


EARLY_EXPIRY: Final = Check(
    anomaly="early-expiry",
    meaning="a committed offset was missing before its retention time was over",
    views=parse_views(f"""
        -- Commits, which must stay until `kept_until`. `superseded`: the same operation made a later commit of the key.
        -- `g`: the last accepted commit of each member in a generation.
        create table expiry_keeps as
        select e.key, e.group as group_name, e.value, e.op, e.call, {RETURNED} as ret,
            greatest(e.call + {nanoseconds("e.retention_ms")},
                case when e.outcome = 'ok' then coalesce(g.last_call, 0) else 0 end) as kept_until,
            case when e.outcome = 'ok' and e.sub < n.sub then 1 else 0 end as superseded
        from effects e left join (
            select e.group as group_name, e.generation, e.owner, max(e.call) as last_call from effects e
            where e.kind = 'keep' and e.outcome = 'ok' and e.generation is not null and e.owner is not null
            group by e.group, e.generation, e.owner) g
            on e.group = g.group_name and e.generation = g.generation and e.owner = g.owner
            left join (
                select key, op, max(sub) as sub from effects
                where kind = 'keep' and outcome = 'ok' and retention_ms is not null group by key, op) n
            on e.key = n.key and e.op = n.op
        where e.kind = 'keep' and e.outcome <> 'fail' and e.retention_ms is not null

        -- Reads of commits. `at_end`: 1 for a read of the drain.
        create table expiry_reads as
        select e.key, e.group as group_name, e.value, e.op, e.call, {RETURNED} as ret,
            case when e.phase = 'drain' then 1 else 0 end as at_end
        from effects e where e.kind = 'kept' and e.outcome = 'ok'

        -- When a commit was certainly in place: when it was acknowledged, or first seen.
        create table expiry_known as
        select k.key, k.value, min(k.op) as op, min(k.call) as call,
            least(min(k.ret), coalesce(min(l.ret), min(k.ret))) as ret
        from expiry_keeps k left join expiry_reads l on k.key = l.key and k.value = l.value group by k.key, k.value
        """),
    # `since`: the call of the last commit before the read. `x`: this commit, and those that may have come after it.
    violations=f"""
        select l.key, l.op as read_op, l.since, min(x.kept_until) as kept_until
        from (
            select l.key, l.op, l.call, l.ret, max(k.call) as since
            from expiry_reads l join expiry_keeps k on k.key = l.key and k.ret < l.call
            where l.value is null group by l.key, l.op, l.call, l.ret) l
            join expiry_keeps x on x.key = l.key and x.ret >= l.since and x.call < l.ret
                and (x.superseded = 0 or x.ret > l.call)
        group by l.key, l.op, l.since, l.ret having min(x.kept_until) > l.ret + {SLACK}
        """,
    evidence=f"""
        select f.key, f.read_op, f.kept_until, min(k.op) as keep_op
        from {first_rows_subquery("found_early_expiry", "key, read_op")} f
            join expiry_keeps k on k.key = f.key and k.call = f.since
        group by f.key, f.read_op, f.kept_until {order_by("f.key, f.read_op")}
        """,
    examined="select count(*) as examined from expiry_reads",
    claim="{read_op} found nothing of {key} by {read_op:returned}, although {keep_op} had committed by "
    "{keep_op:returned} what had to stay until {kept_until:time} at least, and nothing that may go earlier came after "
    "it.",
)


REVIVED_OFFSET: Final = Check(
    anomaly="revived-offset",
    meaning="a committed offset was found again after it was missing or replaced",
    views=parse_views("""
        -- Reads that found nothing, and later commits: both end an earlier commit.
        create table expiry_ends as
        select key, op, call, ret, 1 as vanished from expiry_reads where value is null
        union all
        select key, op, call, ret, 0 from expiry_known
        """),
    violations="""
        select l.key, l.op as read_op, l.value, k.op as keep_op, min(e.ret) as gone
        from expiry_reads l join expiry_known k on k.key = l.key and k.value = l.value
            join expiry_ends e on e.key = l.key and e.call > k.ret and e.ret < l.call
        group by l.key, l.op, l.value, k.op
        """,
    evidence=f"""
        select f.key, f.read_op, f.value, f.keep_op, min(e.op) as other_op, min(e.vanished) as vanished
        from {first_rows_subquery("found_revived_offset", "key, read_op")} f
            join expiry_ends e on e.key = f.key and e.ret = f.gone
        group by f.key, f.read_op, f.value, f.keep_op {order_by("f.key, f.read_op")}
        """,
    examined=EARLY_EXPIRY.examined,
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{read_op} found the commit {value} of {key}, called at {read_op:called}, although {other_op}, which called "
    "at {other_op:called} when it had been there, [vanished=1?found nothing|committed something else] by "
    "{other_op:returned}.",
    operations=("read_op", "other_op", "keep_op"),
)


OVERDUE_OFFSET: Final = Check(
    anomaly="overdue-offset",
    meaning="a committed offset still existed at the deadline after its retention time",
    views=(QUIET,),
    violations="""
        select * from (
            select l.key, l.op as read_op, l.value, l.call, d.retention_deadline as deadline,
                greatest(k.since, g.since, coalesce(p.since, 0), q.since) as since
            from expiry_reads l
                join (select key, max(kept_until) as since from expiry_keeps group by key) k on k.key = l.key
                join (select group_name, max(call) as since from expiry_keeps group by group_name) g
                on g.group_name = l.group_name
                left join (
                    select key, max(coalesce(ret, call)) as since from effects where kind = 'part' group by key) p
                on p.key = l.group_name
                cross join rest_quiet q cross join deadlines_declared d
            where l.at_end = 1 and l.value is not null) as ended
        where call > since + deadline
        """,
    evidence=select_first("found_overdue_offset", "key, read_op"),
    examined="select count(*) as examined from expiry_reads where at_end = 1",
    claim="{read_op:capital} found the commit {value} of {key}, called at {read_op:called}, although nothing had to "
    "stay there, and no fault was in force, since {since:time}; the contract's deadline is {deadline:time}.",
    moments=("since",),  # further times of cause and effect
    optional=True,  # a run without data for it may pass
    needs_end=True,  # proves nothing about an interrupted run
)

EXPIRY: Final = Family(
    name="expiry",
    checks=(EARLY_EXPIRY, REVIVED_OFFSET, OVERDUE_OFFSET),
    applies="select count(*) as examined from effects where kind in ('keep', 'kept')",
    kinds=("keep", "kept"),
)
