"""Fencing tokens of leases: once a newer token was given or used, no action under an older token is accepted.

A workload records itself in ``effects`` as follows. ``key`` is always the lease's name, also for actions under the
lease. ``token`` is the fencing token, which rises with each new holder. ``group`` is null, or distinguishes leases of
one name.

- ``acquire``: the lease was given, with this token. An owner may get its token again.
- ``renew``: the holder asked the giver of the lease to prolong it.
- ``guarded``: an action under the lease. The leased resource (the guard) accepted the token (ok), rejected it (fail),
  or the answer is unknown (info). A rejection *because there is a newer token* has the error ``stale-epoch``; other
  rejections prove nothing.
- ``release`` and ``lost`` are not needed here: a lease that ends without a new holder fences no one.

For example, no action under token 4 may be accepted if it was called after token 5 was given. The check is rule U: no
operation may have a lower place than an operation that had returned before its call. For token t, an acquire has the
place 2t, an accepted action or a renewal 2t + 1, and a rejection as stale 2t + 2.

- A rejection proves only that a newer token existed by its return, so its call never counts.
- A guard that learns tokens only from requests cannot know of an acquire. If the contract says so
  (``fenced_by_requests``), acquires and renewals do not count.
- Operations of unknown outcome are dropped, because no client knows whether they were accepted.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.exposure import Exposure
from assay.checkers.sql_idioms import (
    EARLIEST,
    first_rows_subquery,
    greatest_before,
    order_by,
    row_number,
    select_nearest_pairs,
)

PLACEABLE: Final = 2**61
"""Tokens below this have a place that fits into 64 bits."""

# Matches a rejection because of a newer token.
_STALE: Final = "e.outcome = 'fail' and (e.error = 'stale-epoch' or e.error like 'stale-epoch:%')"

_FIRST: Final = first_rows_subquery("found_fencing_violation", "group_name, key, place")

FENCING_VIOLATION: Final = Check(
    anomaly="fencing-violation",
    meaning="an operation was accepted under a token that had been superseded",
    views=parse_views(f"""
        -- Leases with guarded actions.
        create view fencing_guarded as
        select coalesce(e.group, '') as group_name, e.key from effects e
        where e.kind = 'guarded' and e.token is not null group by coalesce(e.group, ''), e.key

        -- Operations with a token, and their places. An acquire that gives its owner a known token again (its `rank` is
        -- above 1) counts as a renewal.
        create table fencing_steps as
        select group_name, key, kind, rejected, token, 2 * token + case when rejected = 1 then 2
                when kind = 'acquire' and rank = 1 then 0 else 1 end as place,
            case when rejected = 0 then call end as call, ret, op
        from (
            select group_name, key, kind, rejected, token, call, ret, op,
                {row_number(by="group_name, key, kind, token, owner", order="call, op, sub")}
                as rank
            from (
                select coalesce(e.group, '') as group_name, e.key, e.kind, e.token, e.op,
                    e.sub, e.owner, e.call, coalesce(e.ret, {INFINITY}) as ret,
                    case when e.kind <> 'acquire' and {_STALE} then 1 else 0 end as rejected
                from effects e cross join group_declared d join fencing_guarded g
                    on e.key = g.key and coalesce(e.group, '') = g.group_name
                where (e.kind = 'guarded' or (e.kind in ('acquire', 'renew') and d.fenced_by_requests = 0))
                    and e.token >= 0 and e.token < {PLACEABLE}
                    and (e.outcome = 'ok' or (e.kind <> 'acquire' and {_STALE}))) as considered) as steps
        """),
    violations=f"""
        select group_name, key, place, first_ret, before from (
            select group_name, key, place, first_ret,
                {greatest_before("last_call", by="group_name, key", order="place")} as before
            from (
                select group_name, key, place, max(call) as last_call, min(ret) as first_ret from fencing_steps
                group by group_name, key, place) as folded) as ordered
        where before > first_ret
        """,
    # `spot` is the place of each side; `select_nearest_pairs` requires the columns `side`, `moment` and `op`.
    evidence=f"""
        select key, group_name, place >> 1 as held_token, former_op as first_op, former_kind as first_kind,
            former_rejected as rejected, former_token as first_token, op as late_op, kind as late_kind,
            spot >> 1 as late_token, contradicted_at, {EARLIEST}
        from ({
        select_nearest_pairs(
            f'''
            select f.group_name, f.key, f.place, 0 as side, a.ret as moment, a.op, a.kind, a.rejected, a.token,
                a.place as spot
            from {_FIRST} f join fencing_steps a on a.group_name = f.group_name and a.key = f.key and a.place = f.place
            where a.ret < {INFINITY}
            union all
            select f.group_name, f.key, f.place, 1, b.call, b.op, b.kind, b.rejected, b.token, b.place
            from {_FIRST} f join fencing_steps b on b.group_name = f.group_name and b.key = f.key and b.place < f.place
            where b.call > f.first_ret
            ''',
            "group_name, key, place",
            carry="kind, rejected, token, spot",
            known_first=True,
        )
    }) as pairs {order_by("group_name, key, place")}
        """,
    examined="select count(*) as examined from fencing_steps where kind = 'guarded'",
    exposure=Exposure(
        rows="""
            select key, count(*) as claims, count(*) - 1 as exposed
            from (select group_name, key, token from fencing_steps group by group_name, key, token) t
            group by group_name, key
            """,
        nouns="leases",
        asserted="given",
        observed="followed by another lease of its name",
        remedy="have several clients ask for each lease in turn",
    ),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{key}: {late_op} has [late_kind=acquire?been given|late_kind=renew?had its lease renewed under|had "
    "something accepted under] token {late_token} in an operation called at {late_op:called}, although {first_op} had "
    "[rejected=1?learned by {first_op:returned} that token {first_token} is stale|[first_kind=acquire?been "
    "given|first_kind=renew?had its lease renewed under|had something accepted under] token {held_token} by "
    "{first_op:returned}].",
    moments=("contradicted_at",),  # further times of cause and effect
)
