"""Committed offsets of a group: only committed positions are fetched, and none is above the position of its reader.

A workload records ``commit``, ``fetched`` and ``advance`` in ``effects`` as in ``groups.family`` and
``groups.offsets``. ``key`` is the group's name, a slash, and the log's key (``workers/orders-0``). A member's
``commit`` has the ``assignment`` under which it reads. A commit without one is by a client that may commit anything.
An ``advance`` is a commit by a client that never seeks. ``value`` is the number of a commit, ``position`` its offset.

``commit-mismatch``: a fetch returned a commit's number with another position. A number is not judged if the position of
any commit with this number is unknown.

``commit-beyond-log`` takes two forms:

- A member committed a position above all positions that its reads under this assignment had reached: the begin of
  reading, and the end of each poll. Such a commit is not judged in three cases:

  - A poll did not end ok, so it may have read further.
  - An operation failed without rows after the last recorded read, so it may have moved its reader.
  - The process was reset, so its later reads have another assignment.

- A log ended below an accepted commit. The end counts if a call after the commit's return found it, and the contract
  declares ends linearizable. It also counts if it is the end at which the drain settled (``log_settled``), and the
  sentinel (the last record before the drain) was sent after the commit's return. Commits by non-members do not count.
  Nothing is judged if a power loss may cut the log (the contract declares ``unflushed``).

``log_declared`` holds values of the contract.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, Family, family_of, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import greatest_before, select_first, total_of

_READER: Final = "group_name, log, process, assignment"
"""The columns that identify a reader: a member under one assignment of a log."""
_READ_CALL: Final = "case when is_commit = 0 then call end"
"""SQL: the call of a read; null for a commit."""


COMMIT_MISMATCH: Final = Check(
    anomaly="commit-mismatch",
    meaning="a fetch returned a group's commit with another offset than it was committed with",
    views=parse_views("""
        -- Commits by number: their count, the count of those with a known offset (`placed`), and the offset.
        create view commit_places as
        select e.key, e.value, count(*) as commits, count(e.position) as placed,
            min(e.position) as position, min(e.op) as op
        from effects e where e.kind = 'commit' and e.value is not null group by e.key, e.value
        """),
    violations="""
        select f.key, f.value, f.position, f.fetch_op, f.times, c.position as committed, c.op as commit_op
        from (
            select key, value, position, min(op) as fetch_op, count(*) as times from effects
            where kind = 'fetched' and outcome = 'ok' and value is not null and position is not null
            group by key, value, position) f
            join commit_places c on f.key = c.key and f.value = c.value and c.placed = c.commits
            left join (select key, value, position from effects where kind = 'commit'
                group by key, value, position) s
            on f.key = s.key and f.value = s.value and f.position = s.position
        where s.key is null
        """,
    evidence=select_first("found_commit_mismatch", "key, value, position"),
    examined="""
        select count(*) as examined from effects where kind = 'fetched' and outcome = 'ok' and value is not null
        """,
    claim="{fetch_op} fetched offset {position} of {key} with the number {value}, called at {fetch_op:called}, but "
    "{commit_op} had committed offset {committed} under that number.",
    more="{times-1}",  # how many operations are not listed
)


COMMIT_BEYOND_LOG: Final = Check(
    anomaly="commit-beyond-log",
    meaning="a member committed more than it had read, or a log ended below what a group had committed",
    views=parse_views(f"""
        -- Commits by members; `log` is the partition.
        create table member_commits as
        select e.op, e.key, substring(e.key, length(e.group) + 2) as log, e.group as group_name, e.process,
            e.assignment, e.position, e.call, e.ret, e.outcome
        from effects e
        where e.kind in ('commit', 'advance') and e.outcome <> 'fail' and e.position is not null
            and e.group is not null and (e.kind = 'advance' or e.assignment is not null)

        -- The position that each operation reached in a log under an assignment (`least` prevents an overflow).
        -- `doubtful`: 1 if the operation did not end ok, so it may have read further.
        create view commit_reads as
        select e.op, e.key as log, e.group as group_name, e.process, e.assignment,
            e.call, max(case when e.kind = 'observe' then least(e.position, {INFINITY - 1}) + 1
                else e.position end) as reached,
            max(case when e.outcome = 'ok' then 0 else 1 end) as doubtful
        from effects e
        where e.kind in ('seek', 'reset', 'observe-begin', 'observe', 'observe-end') and e.assignment is not null
            and e.group is not null
        group by e.op, e.key, e.group, e.process, e.assignment, e.call

        -- Commits above all positions reached before under their assignment. `reached`, `doubtful`, `last_read`: the
        -- greatest values of the reads before the commit. `r`: the first reset of the process in this log.
        create view commits_above_reads as
        select s.op, s.log, s.process, s.position, s.reached, s.call, s.last_read
        from (
            select op, log, process, call, position,
                {greatest_before("reach", by=_READER, order="call, op, is_commit, position")} as reached,
                {greatest_before("doubtful", by=_READER, order="call, op, is_commit, position")} as doubtful,
                {greatest_before(_READ_CALL, by=_READER, order="call, op, is_commit, position")} as last_read
            from (
                select op, log, group_name, process, assignment, call, 0 as is_commit,
                    cast(null as bigint) as position, reached as reach, doubtful
                from commit_reads
                union all
                select op, log, group_name, process, assignment, call, 1, position, null, 0
                from member_commits where assignment is not null) as steps
            ) s left join (
                select process, key, min(call) as call from effects where kind = 'reset' group by process, key
            ) r on s.process = r.process and s.log = r.key
        where s.position > s.reached and s.doubtful = 0 and (r.call is null or r.call > s.call)

        -- Operations that did not end ok and have the name (`f`) of an operation that reads.
        create view commit_failed_reads as
        select o.process, o.call from ops o join (
            select own.f from commit_reads c join ops own on own."index" = c.op group by own.f) k on o.f = k.f
        where o.outcome <> 'ok' group by o.process, o.call

        -- Commits of `commits_above_reads` whose reader had no failed operation since its last recorded read.
        create table commits_unread as
        select r.op, r.log, r.position, r.reached
        from commits_above_reads r left join commit_failed_reads f
            on f.process = r.process and f.call > r.last_read and f.call <= r.call
        where f.process is null

        -- Reported or settled ends of a log. `before`: the greatest position that had been committed before the end was
        -- requested, or before the sentinel was sent.
        create view ends_below_commits as
        select op, log, time, position, before from (
            select op, log, time, position, is_commit,
                {greatest_before("made", by="log", order="time, is_commit, op")} as before
            from (
                select 1 as is_commit, op, log, ret as time, position as made, cast(null as bigint) as position
                from member_commits where outcome = 'ok' and ret is not null
                union all
                select 0, e.op, e.key, e.call, null, e.position
                from effects e cross join log_declared d
                where e.kind = 'end' and e.outcome = 'ok' and e.position is not null and d.linearizable_ends = 1
                union all
                select 0, t.sentinel_op, t.key, t.sentinel_call, null, t.settled
                from log_settled t where t.sentinel_call is not null) as moments
            ) as ordered
        where is_commit = 0 and before > position
        """),
    violations="""
        select c.key, 'reads' as why, c.op as commit_op, r.position, r.reached, cast(null as bigint) as other_op,
            cast(null as string) as log
        from commits_unread r join member_commits c on r.op = c.op and r.log = c.log and r.position = c.position
        group by c.key, c.op, r.position, r.reached
        union all
        select min(c.key), 'end', min(c.op), e.before, e.position, e.op, e.log
        from ends_below_commits e cross join log_declared d
            join member_commits c on e.log = c.log and e.before = c.position and c.outcome = 'ok'
            and c.ret < e.time
        where d.unflushed = 0 group by e.log, e.before, e.position, e.op
        """,
    evidence=select_first("found_commit_beyond_log", "key, why, commit_op, other_op"),
    examined="select count(*) as examined from member_commits",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{commit_op} committed offset {position} of {key} [why=reads?at {commit_op:called}, but had read no further "
    "than to offset {reached}|by {commit_op:returned}, but {other_op}, which called at {other_op:called}, found the "
    "log's end at offset {reached}].",
    about=("[why=reads?|end of {log} in operation {other_op:number}]",),  # subjects of a finding
    explained_by=("high-watermark-regression", "end-too-low", "real-time-order"),
)

COMMIT_MISMATCHES: Final = Family(
    name=COMMIT_MISMATCH.anomaly,
    checks=(COMMIT_MISMATCH,),
    applies=f"select {total_of('many')} as examined from effect_kinds where kind = 'fetched'",
)
COMMITS_BEYOND_LOG: Final = family_of(
    COMMIT_BEYOND_LOG,
    applies="effects e where e.kind = 'advance' or (e.kind = 'commit' and e.assignment is not null)",
    kinds=("advance", "commit"),
)
COMMITS: Final = (COMMIT_MISMATCHES, COMMITS_BEYOND_LOG)
