"""Ownership intervals: who held a partition or a lease, from when to when, and whether two owners held it at once.

A *hold* is one ownership of a partition (or a lease) by one owner: the rows of one ``process``, ``key`` and
``assignment`` (unique for each hold). It is **certain** from the ``acquire``'s return to the first of

- the call of its ``release``, with any outcome: from then on the partition may be free;
- the call of the operation in which the owner learned that it had ``lost`` the partition;
- the moment at which a fault that kills processes may have begun on a node with clients, unless an operation under this
  hold was answered later. No column says which client ran on which node, so each such fault counts for all;
- if it was never given up, the call of the last answered operation under it, because the owner's later fate is unknown.

Acquires of unknown outcome are dropped. A *term* is a generation or a token. With terms, a partition has one owner in
each term. A partition that was given up must not get another owner in the same term, because the term would no longer
distinguish the two owners. Without terms, two certain holds of different owners must not overlap.

An ``acquire`` whose key is the group's own name reports a membership without a partition, so it is not a hold. A group
that its coordinator has forgotten numbers its generations from the start again (``FORGOTTEN_GROUPS``). So each
generation may have one more owner for each time that the group was forgotten.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.exposure import Exposure
from assay.checkers.groups.generations import FORGOTTEN_GROUPS
from assay.checkers.sql_idioms import (
    EARLIEST_BEGIN,
    MAY_HAVE_BEGUN,
    first_rows_subquery,
    greatest_before,
    order_by,
    select_nearest_pairs,
    sum_so_far,
    total_of,
)

TERM: Final = "coalesce(e.generation, e.token)"
"""SQL: the term of a row, a generation or a token; null in a design without terms."""


HOLD_VIEWS: Final = parse_views(f"""
    -- Acquires, one row per hold.
    create view hold_acquires as
    select coalesce(e.group, '') as group_name, e.key, e.process, e.assignment,
        min(case when e.outcome = 'ok' then e.owner end) as owner,
        max(case when e.outcome = 'ok' then e.owner end) as other_owner,
        max(case when e.outcome = 'ok' then {TERM} end) as term, min(e.op) as op, max(e.call) as reported,
        max(case when e.outcome = 'ok' then coalesce(e.ret, {INFINITY}) end) as begun
    from effects e where e.kind = 'acquire' and e.outcome <> 'fail'
    group by coalesce(e.group, ''), e.key, e.process, e.assignment

    -- The operations under each assignment, whether it was acquired or not. Only numbers are aggregated, because nearly
    -- all rows are read.
    create view hold_uses as
    select coalesce(e.group, '') as group_name, e.key, e.process, e.assignment,
        min(case when e.kind in ('release', 'lost') then e.call end) as given_up,
        max(case when e.kind = 'lost' or (e.kind = 'release' and e.outcome = 'ok') then e.ret end) as surely_ended,
        max(case when e.kind not in ('release', 'lost') and e.ret is not null then e.call end) as last_use
    from effects e
    where e.kind not in ('append', 'end') and e.assignment is not null
    group by coalesce(e.group, ''), e.key, e.process, e.assignment

    -- Times of each hold. `begun`: certainly held from then on. `reported`: call of the last operation that reports it.
    -- `given_up`: the owner began to give it up, or learned of its loss. `surely_ended`: the hold certainly ended by
    -- then. `last_use`: the call of the last answered operation under the hold.
    create table holds as
    select a.group_name, a.key, a.process, a.assignment, a.owner, a.other_owner, a.term, a.op, a.reported, a.begun,
        u.given_up, u.surely_ended, u.last_use
    from hold_acquires a left join hold_uses u on a.group_name = u.group_name and a.key = u.key
        and a.process = u.process and a.assignment = u.assignment

    -- `since`: the earliest possible begin of a fault.
    create table fault_times as
    select id, max(case when on_clients then 1 else 0 end) as of_clients,
        max(case when coalesce(ends_process, true) then 1 else 0 end) as ends_process,
        {EARLIEST_BEGIN} as since,
        coalesce(max(case when phase = 'healed' then time end), {INFINITY}) as healed,
        coalesce(max(case when phase = 'recovered' then time end), {INFINITY}) as recovered
    from faults group by id having {MAY_HAVE_BEGUN}

    -- Times between which a client's process may have ended. A fault that does not say whether it ends processes may do
    -- so. The row of nulls keeps all holds in the cross join below if there is no such fault.
    create view client_kills as
    select since, healed from fault_times where of_clients = 1 and ends_process = 1
    union all select cast(null as bigint), cast(null as bigint)

    -- The certain part of each hold with a known owner.
    create table certain_holds as
    select group_name, key, process, owner, term, op, begun, until from (
        select group_name, key, process, owner, term, op, begun,
            case when given_up is null then last_use
                when killed < given_up then greatest(killed, least(last_use, given_up)) else given_up end as until
        from (
            select h.group_name, h.key, h.process, h.owner, h.term, h.op, h.begun, h.given_up, h.last_use,
                min(case when k.healed > h.begun then greatest(k.since, h.begun) end) as killed
            from holds h cross join client_kills k
            where h.assignment is not null and h.owner = h.other_owner
            group by h.group_name, h.key, h.process, h.assignment, h.owner, h.term, h.op, h.begun, h.given_up,
                h.last_use
            ) as facing) as bounded
    where begun < until
    """)


# SQL: 1 if no earlier hold of the owner touches this one, so a new reign begins.
_BEGINS_REIGN: Final = "case when earlier_end >= begun then 0 else 1 end"
_FIRST: Final = first_rows_subquery("found_double_ownership", "group_name, key, term, begun")

DOUBLE_OWNERSHIP: Final = Check(
    anomaly="double-ownership",
    meaning="two owners held one partition, lock or lease at the same time",
    views=(
        FORGOTTEN_GROUPS,
        *parse_views(f"""
        -- The owners of each partition in each term.
        create table generation_owners as
        select coalesce(e.group, '') as group_name, e.key, {TERM} as term, e.owner, min(e.op) as op,
            max(e.generation) as generation
        from effects e
        where e.kind = 'acquire' and e.outcome = 'ok' and {TERM} is not null
            and e.owner is not null and e.key <> coalesce(e.group, '')
        group by coalesce(e.group, ''), e.key, {TERM}, e.owner

        -- Holds without a term. `earlier_end`: the latest end of earlier holds of the same owner.
        create view hold_order as
        select group_name, key, owner, begun, until,
            {greatest_before("until", by="group_name, key, owner", order="begun, until")} as earlier_end
        from certain_holds where term is null and key <> group_name

        -- Numbers an owner's reigns: overlapping or adjoining holds are one reign.
        create view hold_reigns as
        select group_name, key, owner, begun, until,
            {sum_so_far(_BEGINS_REIGN, by="group_name, key, owner", order="begun, until")} as reign
        from hold_order

        -- Reigns. `before`: the latest end of earlier reigns of any owner.
        create view reigns as
        select group_name, key, begun, until, before from (
            select group_name, key, begun, until,
                {greatest_before("until", by="group_name, key", order="begun, owner")} as before
            from (
                select group_name, key, owner, min(begun) as begun, max(until) as until from hold_reigns
                group by group_name, key, owner, reign) as joined) as ordered
        """),
    ),
    violations="""
        select o.group_name, o.key, o.term, count(*) as owners, max(coalesce(g.times, 0)) as forgotten,
            max(o.generation) as generation, cast(null as bigint) as begun, cast(null as bigint) as until,
            cast(null as bigint) as before
        from generation_owners o left join group_forgotten g on o.group_name = g.key
        group by o.group_name, o.key, o.term having count(*) > 1 + max(coalesce(g.times, 0))
        union all
        select group_name, key, cast(null as bigint), 2, 0, cast(null as bigint), begun, until, before
        from reigns where before > begun
        """,
    # With a term, `n` has the two acquires of different owners that are nearest in time. Without one, `c` and `d` are
    # the holds that overlap: `c` ends at `before`, and `d` begins earlier, at `begun`.
    evidence=f"""
        select f.group_name, f.key, f.term, f.owners, f.forgotten, f.generation, f.begun, f.until, f.before,
            coalesce(min(n.former_side), min(c.owner)) as low_owner, coalesce(min(n.side), min(d.owner)) as high_owner,
            coalesce(min(n.former_op), min(c.op)) as low_op, coalesce(min(n.op), min(d.op)) as high_op,
            coalesce(min(n.former_op), min(d.op)) as first_op, coalesce(min(n.op), min(c.op)) as second_op,
            min(n.earliest) as earliest, min(n.earliest_op) as earliest_op,
            min(c.begun) as low_begun, min(l.op) as last_op, least(f.before, f.until) as ended
        from {_FIRST} f
            left join ({
        select_nearest_pairs(
            f'''
            select f.group_name, f.key, f.term, e.owner as side, coalesce(e.ret, e.call) as moment, e.op
            from {_FIRST} f join effects e
                on f.group_name = coalesce(e.group, '') and f.key = e.key and f.term = {TERM}
            where e.kind = 'acquire' and e.outcome = 'ok' and e.owner is not null
            ''',
            "group_name, key, term",
        )
    }) n on n.group_name = f.group_name and n.key = f.key and n.term = f.term
            left join certain_holds c on c.group_name = f.group_name and c.key = f.key and c.until = f.before
                and c.term is null
            left join certain_holds d on d.group_name = f.group_name and d.key = f.key and d.begun = f.begun
                and d.term is null
            left join double_owned_last l on l.process = c.process and l.call = f.before
        group by f.group_name, f.key, f.term, f.owners, f.forgotten, f.generation, f.begun, f.until, f.before
        {order_by("f.group_name, f.key, f.term, f.begun")}
        """,
    examined="select (select count(*) from generation_owners) + (select count(*) from hold_reigns) as examined",
    exposure=Exposure(
        rows=f"""
            select h.key, count(*) as claims, {total_of("case when a.clients > 1 then 1 else 0 end")} as exposed
            from holds h join (
                select group_name, key, count(*) as clients from (
                    select coalesce(e.group, '') as group_name, e.key, e.process from effects e
                    where e.kind = 'acquire' group by coalesce(e.group, ''), e.key, e.process) as asked
                group by group_name, key) a on h.group_name = a.group_name and h.key = a.key
            where h.owner is not null and h.key <> h.group_name group by h.group_name, h.key
            """,
        nouns="holds",
        asserted="given",
        observed="contested by another client",
        no_claims="nothing was given to anyone",
        remedy="let several clients ask for the same thing",
    ),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{key}[group_name=?| of {group_name}|] had [term?[owners=2?two|{owners}] owners in generation {term}: "
    "{low_owner} ({low_op}) and {high_owner} ({high_op})[forgotten>0?, although the group began again no more than "
    "{forgotten} times]|two owners from {begun:time} to {ended:time}: {low_owner} ({low_op}) owned it from "
    "{low_begun:time} to at least {before:time}, and {high_owner} ({high_op}) from {begun:time} to at least "
    "{until:time}].",
    operations=("first_op", "second_op", "last_op"),
    about=("[term?[forgotten>0?|generation {generation} of {group_name}|]]",),  # subjects of a finding
    explained_by=("generation-reuse",),
    seen_again=True,  # in each partition of a generation that was given out twice
    evidence_views=parse_views("""
        -- The processes of the violations without terms, and the times until which they certainly held.
        create table double_owned_until as
        select c.process, c.until
        from found_double_ownership f join certain_holds c on c.group_name = f.group_name and c.key = f.key
            and c.until = f.before
        where c.term is null group by c.process, c.until

        -- The operation of each of these processes that was called at this time.
        create view double_owned_last as
        select e.process, e.call, min(e.op) as op
        from effects e join double_owned_until d on e.process = d.process and e.call = d.until
        group by e.process, e.call
        """),
)
"""Overlapping or adjoining holds of one owner are one reign, so two reigns that overlap have different owners."""
