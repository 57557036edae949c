"""Reader positions: a poll begins where the previous poll ended, and an uncompacted log skips no offset.

Polls of one process, key and assignment are *consecutive* if no seek, reset or failed poll is between them. A failed
poll may have moved its reader without recording it.

Offsets are dense only if the contract says so (``dense_offsets``); other logs may have gaps. In a dense log, a poll
that ended ok has shown a record at each offset from its begin to its end. Compacted topics, and offsets below a
reported log start, are exempt. A hole counts even if no client knows the missing record. If a client knows it, other
checks report the loss.

``views`` explains the tables of the log that this module reads but does not create.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import order_by, previous, select_first

_READER: Final = {"by": "process, key, assignment", "order": "call, op, sub"}
"""Arguments of ``previous``: the rows of one reader, in their order."""

POSITION_TABLES: Final = parse_views(f"""
    -- Rows that show or set the position of a reader.
    create view log_moves as
    select op, sub, process, key, coalesce(assignment, -1) as assignment, kind, position, call, ret, outcome
    from log_effects where kind in ('observe-begin', 'observe-end', 'seek', 'reset') and position is not null

    -- Each row with a reader's position, and the row of the same reader before it.
    create table log_positions as
    select op, sub, process, key, assignment, kind, position, call, ret, outcome,
        {previous("kind", **_READER)} as former_kind, {previous("position", **_READER)} as former,
        {previous("outcome", **_READER)} as former_outcome, {previous("op", **_READER)} as former_op,
        {previous("call", **_READER)} as former_call
    from log_moves
    """)


POSITION_JUMP: Final = Check(
    anomaly="position-jump",
    meaning="a poll began at another offset than the one where its reader had stopped",
    views=parse_views("""
        -- Polls that began at another offset than the one where the previous poll had ended.
        create table log_jumps as
        select op, sub, process, key, position, former, former_op, former_call, call from log_positions
        where kind = 'observe-begin' and outcome = 'ok' and former_kind = 'observe-end' and former_outcome = 'ok'
            and position <> former

        -- Jumps with a failed operation of the process in between that has the same name (`f`) as the poll's operation.
        create view log_excused_jumps as
        select j.op, j.sub
        from log_jumps j join ops own on own."index" = j.op join ops o on o.process = j.process and o.f = own.f
        where o.outcome <> 'ok' and o.call > j.former_call and o.call < j.call group by j.op, j.sub
        """),
    violations="""
        select j.op, j.sub, j.key, j.position, j.former, j.former_op
        from log_jumps j left join log_excused_jumps x on j.op = x.op and j.sub = x.sub where x.op is null
        """,
    evidence=select_first("found_position_jump", "key, op, sub", also="op as poll_op"),
    examined="""
        select count(*) as examined from log_positions
        where kind = 'observe-begin' and outcome = 'ok' and former_kind = 'observe-end' and former_outcome = 'ok'
        """,
    kinds=("observe-end",),
    claim="{poll_op:capital} read {key} up to offset {former} (poll from {former_op:called}), and its next poll, from "
    "{poll_op:called}, began at offset {position}, with no seek or reset between them.",
    about=("begin of poll {poll_op:number} of {key}",),  # subjects of a finding
    optional=True,  # a run without data for it may pass
)


OFFSET_HOLE: Final = Check(
    anomaly="offset-hole",
    meaning="a poll passed an offset that holds no record",
    views=parse_views(f"""
        -- Polls of dense logs that may lack an offset between `base` and `next_offset`. `log.views` explains the
        -- columns of `log_polls`.
        create table log_polls_with_gaps as
        select p.op, p.key, p.segment, p.next_offset, greatest(p.first_offset, coalesce(t.log_start, 0)) as base
        from log_polls p cross join log_declared d
            left join log_starts t on p.key = t.key left join log_compacted c on p.key = c.key
        where d.dense_offsets = 1 and c.key is null and p.passing = 1
            and (p.plain = 0 or p.first_offset <> greatest(p.next_offset, 0) - p.records)
            and p.next_offset > coalesce(t.log_start, 0)

        -- The offsets that such a poll showed, and the offset before its range.
        create view log_gap_edges as
        select op, key, segment, greatest(base, -{INFINITY}) - 1 as position, next_offset from log_polls_with_gaps
        union all
        select g.op, g.key, g.segment, p.position, g.next_offset
        from log_polls_with_gaps g join log_poll_rows p on g.op = p.op and g.key = p.key and g.segment = p.segment
        where p.kind = 'observe' and p.position >= g.base and p.position < g.next_offset
        group by g.op, g.key, g.segment, p.position, g.next_offset

        -- Ranges of offsets that a poll passed without a record.
        create view log_gaps as
        select op, key, position + 1 as position, coalesce(following, next_offset) as until from (
            select op, key, position, next_offset,
                lead(position) over (partition by op, key, segment {order_by("position")}) as following
            from log_gap_edges) as edges
        where coalesce(following, next_offset) > position + 1
        """),
    violations="""
        select g.key, g.position, min(g.until) as until, count(*) as polls, min(g.op) as op
        from log_gaps g left join log_offsets o on g.key = o.key and g.position = o.position
        where o.key is null group by g.key, g.position
        """,
    evidence=select_first("found_offset_hole", "key, position", also="op as poll_op, until - 1 as last"),
    examined="""
        select count(*) as examined from log_polls p cross join log_declared d
        where d.dense_offsets = 1 and p.passing = 1
        """,
    kinds=("observe-end",),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="[last>{position}?offsets {position} to {last}|offset {position}] of {key} held no record for the poll by "
    "{poll_op} from {poll_op:called} to {poll_op:returned}, which went on behind, and this log leaves no offset "
    "out[polls>1?; {polls-1} other poll[polls>2?s] saw the same].",
    more="{polls-1}",  # how many operations are not listed
    optional=True,  # a run without data for it may pass
)
