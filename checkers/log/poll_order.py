"""Order inside and between polls: one consumer under one assignment skips no record and never goes back.

A *chain* is the sequence of records that one process read of one key under one assignment. Each record must be at the
next known offset after its predecessor. The first record must be at the first known offset at or after the offset that
was fetched or sought. An offset is *known* if any consumer observed a record there, and neither retention nor
compaction may have deleted the record. A gap in offsets alone proves nothing.

A poll that did not end ok but showed records breaks its chain, because it may have moved the consumer any distance.

``views`` creates ``log_offsets`` and ``log_value_offsets``, the known offsets without and with the values there. In the
table ``effects``, ``sub`` is the place of a row inside its operation. :class:`assay.checkers.check.Check` explains the
fields of a check, and :mod:`assay.checkers.claims` the syntax of ``claim`` and ``about``.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import (
    first_rows_subquery,
    is_not_next,
    order_by,
    previous,
    row_number,
    select_first,
    sum_so_far,
)

# Columns and conditions of a row `r` of `log_reading_rows`, and of a broken chain `b`.
_STEP: Final = "r.op, r.sub, r.process, r.key, r.assignment, r.kind, r.position, r.call, r.outcome"
_BREAKS: Final = "case when r.kind = 'observe' and r.outcome <> 'ok' then 1 else 0 end"
_SAME_CHAIN: Final = "r.process = b.process and r.key = b.key and r.assignment = b.assignment"

_LINK: Final = "r.process, r.key, r.assignment, r.breaks, r.op, r.call"
"""Columns of a link: a sequence of records of one chain that has no gap and that one operation read."""


POLL_VIEWS: Final = parse_views(f"""
    -- Rows of polls, seeks and resets with an offset.
    create view log_reading_rows as
    select op, sub, process, key, coalesce(assignment, -1) as assignment, kind, position, call, outcome
    from log_effects where kind in ('observe', 'observe-begin', 'seek', 'reset') and position is not null

    -- Chains with a poll that showed records and did not end ok.
    create table log_broken_chains as
    select process, key, assignment from log_reading_rows where kind = 'observe' and outcome <> 'ok'
    group by process, key, assignment

    -- `breaks` counts, along the chain, the records whose poll did not end ok. Few chains have such records, and only
    -- these chains are sorted.
    create view log_steps as
    select {_STEP}, cast(0 as bigint) as breaks
    from log_reading_rows r left join log_broken_chains b on {_SAME_CHAIN} where b.process is null
    union all
    select {_STEP}, {sum_so_far(_BREAKS, by="r.process, r.key, r.assignment", order="r.call, r.op, r.sub")} as breaks
    from log_reading_rows r join log_broken_chains b on {_SAME_CHAIN}

    -- The offset that each part of a chain first fetched or sought.
    create view log_chain_starts as
    select process, key, assignment, breaks, position as sought, op from (
        select process, key, assignment, breaks, position, op,
            {row_number(by="process, key, assignment, breaks", order="call, op, sub")}
            as rank
        from log_steps where kind <> 'observe' and position >= 0) as starts
    where rank = 1

    -- The records that one operation read of a chain. `gapless`: their offsets are consecutive, so comparing the two
    -- ends is enough. Offsets are consecutive if `position - sub` (the shift) is equal for all rows.
    create table log_stretches as
    select process, key, assignment, breaks, op, call, sub, low, high,
        case when low >= 0 and least_shift = greatest_shift and span = records - 1 then 1 else 0 end as gapless
    from (
        select process, key, assignment, breaks, op, min(call) as call, min(sub) as sub,
            min(position) as low, max(position) as high, count(*) as records,
            max(greatest(position, 0)) - min(greatest(position, 0)) as span,
            min(greatest(position, 0) - sub) as least_shift, max(greatest(position, 0) - sub) as greatest_shift
        from log_steps where kind = 'observe' and outcome = 'ok'
        group by process, key, assignment, breaks, op) as read_at_once

    -- Stretches whose records must be compared one by one. Nearly always there are none.
    create table log_gapped_stretches as
    select op, process, key, assignment, breaks from log_stretches where gapless = 0

    -- Links of chains: first and last offset of records without a gap. A stretch with gaps has a link for each record.
    create view log_links as
    select {_LINK}, r.sub, r.low, r.high from log_stretches r where r.gapless = 1
    union all
    select {_LINK}, r.sub, r.position as low, r.position as high
    from log_steps r join log_gapped_stretches t on r.op = t.op and r.process = t.process and r.key = t.key
        and r.assignment = t.assignment and r.breaks = t.breaks
    where r.kind = 'observe' and r.outcome = 'ok'

    -- Each link with the last offset of the link before it.
    create view log_link_pairs as
    select op, sub, process, key, assignment, breaks, low as position,
        {previous("high", by="process, key, assignment, breaks", order="call, op, sub")} as former,
        {previous("op", by="process, key, assignment, breaks", order="call, op, sub")} as former_op
    from log_links

    -- All steps that do not go to the next offset. The predecessor of the first record is the offset below the sought
    -- offset.
    create table log_poll_gaps as
    select c.op, c.sub, c.process, c.key, c.position,
        coalesce(c.former, greatest(s.sought, -{INFINITY}) - 1) as former,
        coalesce(c.former_op, s.op) as former_op, case when c.former is null then s.sought end as sought
    from log_link_pairs c
        left join log_chain_starts s on c.process = s.process and c.key = s.key and c.assignment = s.assignment
            and c.breaks = s.breaks and c.former is null
    where case when c.former is null then c.position <> s.sought
        else {is_not_next("c.position", "c.former")} end
    """)

_EXAMINED: Final = "select count(*) as examined from log_steps where kind = 'observe' and outcome = 'ok'"


NONMONOTONIC_POLL: Final = Check(
    anomaly="nonmonotonic-poll",
    meaning="the offsets that one consumer read go back",
    violations="select op, sub, key, position, former, former_op, sought from log_poll_gaps where position <= former",
    evidence=select_first("found_nonmonotonic_poll", "key, op, sub", also="op as poll_op"),
    examined=_EXAMINED,
    kinds=("observe",),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{poll_op:capital} [sought?asked for offset {sought} of {key} ({former_op:called}) and first read offset "
    "{position}, below it (poll from {poll_op:called})|read offset {position} of {key} (poll from {poll_op:called}) "
    "after offset {former} (poll from {former_op:called}), with no seek or rebalance between them].",
    operations=("poll_op", "former_op"),
    about=("[sought?|poll_op={former_op}?|begin of poll {poll_op:number} of {key}]",),  # subjects of a finding
    explained_by=("position-jump",),
)


POLL_SKIP: Final = Check(
    anomaly="poll-skip",
    meaning="a consumer skipped a record that was in the log",
    views=parse_views(f"""
        -- The number of known offsets up to each end of a gap (`upto`). `judged` (log.views): neither retention nor
        -- compaction may have deleted the record.
        create table log_observed_below as
        select key, position, known, {sum_so_far("known", by="key", order="position")} as upto
        from (
            select key, position, max(known) as known from (
                select key, position, case when observed = 1 and judged = 1 then 1 else 0 end as known
                from log_offsets
                union all select key, former, 0 from log_poll_gaps
                union all select key, position, 0 from log_poll_gaps) as points
            group by key, position) as folded
        """),
    violations="""
        select g.op, g.sub, g.key, g.position, g.former, g.former_op, g.sought, b.upto - b.known - a.upto as skipped
        from log_poll_gaps g
            join log_observed_below a on g.key = a.key and g.former = a.position
            join log_observed_below b on g.key = b.key and g.position = b.position
        where g.position > g.former and b.upto - b.known - a.upto > 0
        """,
    evidence=f"""
        select m.key, m.poll_op, m.position, m.former, m.former_op, m.sought, m.skipped, m.missed,
            min(w.seen_op) as witness_op
        from (
            select f.key, f.op as poll_op, f.sub, f.position, f.former,
                f.former_op, f.sought, f.skipped, min(o.position) as missed
            from {first_rows_subquery("found_poll_skip", "key, op, sub")} f
                join log_offsets o on f.key = o.key and o.position > f.former and o.position < f.position
            where o.observed = 1 and o.judged = 1
            group by f.key, f.op, f.sub, f.position, f.former, f.former_op, f.sought, f.skipped) m
            join log_value_offsets w on m.key = w.key and m.missed = w.position
        where w.observed > 0
        group by m.key, m.poll_op, m.sub, m.position, m.former, m.former_op, m.sought, m.skipped, m.missed
        {order_by("m.key, m.poll_op, m.sub")}
        """,
    examined=_EXAMINED,
    kinds=("observe",),
    claim="{poll_op:capital} [sought?asked for offset {sought} of {key} ({former_op:called}) and first read|read "
    "offset {former} of {key} (poll from {former_op:called}) and next] offset {position} (poll from "
    "{poll_op:called}), but others saw {skipped} record[skipped>1?s] between them, such as offset {missed}, read by "
    "{witness_op} at {witness_op:called}.",
    operations=("poll_op", "former_op", "witness_op"),
    about=("[poll_op={former_op}?offset {missed} of {key}|sought?|begin of poll {poll_op:number} of {key}]",),
    explained_by=("position-jump", "inconsistent-offset", "vanished"),
)
