"""A new owner begins to read at the committed offset of its group.

A workload records ``acquire``, then ``fetched`` and ``seek`` of the same partition, as in ``groups.family``;
``advance`` and ``resume`` are recorded as in ``groups.offsets``. There are two violations:

- In one operation a member was given a partition, learned its committed offset (0 or more), and began to read at
  another offset, under the assignment of this hold. The three rows must be adjacent: any other row about the partition
  between them (out of range, log start or end) is a reason to begin at another offset. A hold without a committed
  offset, a hold that the member had before (nothing is fetched for it), and a later seek are not judged.
- A ``resume`` is at an offset that no ``advance`` ever committed.

These exceptions apply to a ``resume``:

- If nothing was committed, it is at the log's start, which is 0 as long as no record is deleted. So a log with a
  reported start above 0 or with deletions by its nodes, and a deleted topic, are not judged.
- If a former holder of the partition has an operation of unknown outcome without effects, a commit may be missing from
  the history. Then no later ``resume`` of the partition is judged.
- An ``advance`` counts even if it was called after the ``resume``, because an advance of unknown outcome may have begun
  before the operation that reports it.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of, parse_views
from assay.checkers.sql_idioms import extract_topic, previous, select_first


def _previous_columns(*names: str, as_: str) -> str:
    """Returns SQL columns of the previous row of the same operation and partition."""
    order = {"by": "op, group_name, log", "order": "sub"}
    return ", ".join(f"{previous(name, **order)} as {as_}_{name.removeprefix('former_')}" for name in names)


MISPLACED_START: Final = Check(
    anomaly="misplaced-start",
    meaning="a new owner began to read at another offset than its group had committed",
    views=parse_views(f"""
        create view start_steps as
        select e.op, e.sub, e.kind, e.group as group_name, e.position, e.assignment, e.outcome,
            case when e.kind = 'fetched' then substring(e.key, length(e.group) + 2) else e.key end as log
        from effects e
        where e.group is not null and e.kind in ('acquire', 'fetched', 'seek', 'reset', 'out-of-range', 'start',
            'end', 'lost', 'release', 'observe-begin')

        -- Seeks right after the partition was acquired and its committed offset was fetched. `former_...` belongs to
        -- the row before the seek, and `first_...` to the row before that one.
        create view start_begun as
        select op, sub, group_name, log, position, former_position as committed from (
            select *, {_previous_columns("former_kind", "former_assignment", as_="first")} from (
                select *, {_previous_columns("kind", "position", "assignment", as_="former")} from start_steps
                ) as two) as three
        where kind = 'seek' and former_kind = 'fetched' and first_kind = 'acquire' and outcome = 'ok'
            and former_position is not null and position is not null and assignment = first_assignment

        -- Positions at which new owners had to begin. `log`: the log's key, without the group's name.
        create table start_resumed as
        select e.op, e.sub, e.key, e.group as group_name, e.process, e.position, e.ret,
            substring(e.key, length(e.group) + 2) as log
        from effects e
        where e.kind = 'resume' and e.outcome = 'ok' and e.position > 0 and e.group is not null
            and e.ret is not null

        -- Logs whose start may have moved.
        create view start_deleted as
        select key from effects where kind = 'start' and position > 0 group by key
        union
        select key from events where event in ('segment-deleted', 'log-start') and key is not null group by key

        -- The time since which a former holder may have made an unrecorded commit.
        create view start_doubts as
        select h.group_name, h.log, min(o.call) as since from (
            select process, "index" as op, call from ops where outcome = 'info') o
            left join (select op from effects group by op) r on r.op = o.op
            join (
                select e.process, e.group as group_name, e.key as log from effects e
                where e.kind = 'acquire' and e.group is not null group by e.process, e.group, e.key) h
            on h.process = o.process
        where r.op is null group by h.group_name, h.log
        """),
    violations=f"""
        select concat(group_name, '/', log) as key, 'fetched' as why, op as begun_op, sub, log, position, committed
        from start_begun where committed >= 0 and position <> committed
        union all
        select s.key, 'resume', s.op, s.sub, s.log, s.position, cast(null as bigint)
        from start_resumed s
            left join (
                select key, coalesce(position, -1) as position from effects
                where kind = 'advance' and outcome <> 'fail' group by key, coalesce(position, -1)) a
            on a.key = s.key and (a.position = s.position or a.position = -1)
            left join start_deleted d on d.key = s.log
            left join start_doubts u on u.group_name = s.group_name and u.log = s.log and u.since < s.ret
            left join (select key from effects where kind = 'topic-delete' group by key) t
            on t.key = {extract_topic("s.log")}
        where a.key is null and d.key is null and u.log is null and t.key is null
        """,
    evidence=select_first("found_misplaced_start", "key, why, begun_op, sub"),
    examined="select (select count(*) from start_begun) + (select count(*) from start_resumed) as examined",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{begun_op} was [why=fetched?given {log} and found offset {committed} of {key} committed, by "
    "{begun_op:returned}, but began to read at {position}|sent to begin at offset {position} of {key}, by "
    "{begun_op:returned}, but no one had ever committed that offset].",
)

STARTS: Final = family_of(
    MISPLACED_START,
    # operations with rows of two of these kinds
    applies="""(
        select e.op from effects e where e.group is not null and e.kind in ('acquire', 'fetched', 'resume')
        group by e.op having min(e.kind) < max(e.kind)) as begun""",
    kinds=("acquire", "fetched", "resume"),
)
