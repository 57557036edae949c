"""The order of a register's values: no value is seen again after another one replaced it.

A *chain* is a sequence of values in known order: each value was written by a CAS that expected the previous value, or
versions order the values (``views``). Inside a chain, an operation is late if an operation on a later value had
returned before its call. Between chains, only time gives an order (Gibbons and Korach, "Testing shared memories",
1997):

1. A chain's *zone* is the interval between its first return and its last call.
2. If the first return is before the last call, the zone is *forward*: the register held values of the chain during the
   whole zone. Otherwise the zone is *backward*: one moment of the zone is enough for all operations of the chain.
3. The history is legal iff no two forward zones overlap and no backward zone is inside a forward zone.
4. A sort by the begin of zones and a running maximum of the ends of forward zones find violations: O(n log n).

Each late call is one instance.

``views`` creates four tables. ``register_placed`` has each value with its chain, and its place there. ``register_kept``
has writes and CAS operations that count, and ``register_seen`` has reads. ``register_links`` has each CAS with the
writer of the value that it expected. ``exposure_bound`` has the time of the last heal (``checkers.exposure``).

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.exposure import Exposure
from assay.checkers.judging.verdict import MOST_FINDINGS
from assay.checkers.register.values import describe_value
from assay.checkers.register.views import INITIAL
from assay.checkers.sql_idioms import greatest_before, order_by, row_number, total_of

_DIFFERENT_VALUES: Final = f"coalesce(g.earlier_value, {INITIAL}) <> g.late_value"
"""SQL: whether an earlier operation on the late call's chain had another value than the late call."""

# `[condition?text|other text]` is a choice: see `checkers.claims`.
_LATE: Final = (
    "{late_op} began to [late_kind=read?read|late_kind=write?write|late_kind=cas?CAS to|use] "
    f"{describe_value('late_value')}"
)
_VALUE_SEEN: Final = f"{describe_value('value')} was there by {{value_time:time}} ({{value_op}})"


STALE_READ: Final = Check(
    anomaly="stale-read",
    meaning="a value was read, or replaced by a CAS, after another value had replaced it",
    views=parse_views(f"""
        -- Late calls inside a chain. `late_call`: the latest call at an earlier place. It is late if it is after
        -- `first_ret`, the first return at this place.
        create view register_late_inside as
        select key, late_call, first_ret, versioned from (
            select key, versioned, first_ret,
                {greatest_before("last_call", by="key, chain", order="place")} as late_call
            from (
                select key, chain, place, max(versioned) as versioned, min(first_ret) as first_ret,
                    max(last_call) as last_call
                from register_placed group by key, chain, place) as places) as ordered
        where late_call > first_ret

        -- The zone of each chain.
        create table register_zones (high_cardinality) as
        select key, chain, first_ret, last_call,
            case when first_ret < last_call then 1 else 0 end as forward,
            least(first_ret, last_call) as low, greatest(first_ret, last_call) as high
        from (
            select key, chain, min(case when chain = {INITIAL} then -{INFINITY} else first_ret end) as first_ret,
                max(last_call) as last_call
            from register_placed where versioned = 0 group by key, chain) as chains

        -- Late calls between chains. `late_call`: the latest end of an earlier forward zone, which is the last call
        -- of this zone's chain.
        create view register_late_across as
        select key, late_call, first_ret, last_call from (
            select key, forward, low, high, first_ret, last_call,
                {greatest_before("case when forward = 1 then high end", by="key", order="low, forward, chain")}
                as late_call
            from register_zones) as ordered
        where (forward = 1 and late_call > low) or (forward = 0 and late_call > high)

        create table found_stale_read (high_cardinality) as
        select key, late_call, min(first_ret) as value_time, count(*) as overtaken, min(across) as across,
            max(versioned) as versioned
        from (
            select key, late_call, first_ret, 0 as across, versioned from register_late_inside
            union all select key, late_call, first_ret, 1, 0 from register_late_across) as late
        group by key, late_call
        """),
    evidence_views=parse_views(f"""
        create table register_first as
        select * from found_stale_read order by key nulls first, late_call nulls first limit {MOST_FINDINGS}

        -- Operations on each value, with its place.
        create view register_uses as
        select u.key, u.op, u.kind, u.value, u.call, u.ret, 0 - u.ret as back, p.chain, p.place from (
            select key, op, 'read' as kind, value, call, ret from register_seen
            union all select key, op, kind, value, call, ret from register_kept) u
            join register_placed p on u.key = p.key and u.value = p.value

        -- For each late call, the last operation on a newer value that had returned.
        create table register_witnesses as
        select key, late_call, chain, op, value, call, ret from (
            select f.key, f.late_call, l.chain, w.op, w.value, w.call, w.ret,
                {row_number(by="f.key, f.late_call", order="w.back, w.op, w.value")} as rank
            from register_first f join register_uses l on f.key = l.key and f.late_call = l.call
                join register_uses w on f.key = w.key and w.ret < f.late_call
                left join register_zones z on f.across = 1 and f.key = z.key and l.chain = z.chain
            where (f.across = 0 and w.chain = l.chain and w.place > l.place)
                or (f.across = 1 and w.chain <> l.chain and w.call > z.first_ret)) as candidates
        where rank = 1

        -- The last operation of the late call's chain that had returned before the witness was called.
        create view register_earlier_witnesses as
        select key, late_call, op, value, ret from (
            select w.key, w.late_call, b.op, b.value, b.ret,
                {row_number(by="w.key, w.late_call", order="b.back, b.op, b.value")} as rank
            from register_witnesses w join register_uses b on w.key = b.key and w.chain = b.chain and b.ret < w.call
            ) as candidates
        where rank = 1

        -- The keys of the first findings.
        create view register_first_keys as
        select key, max(versioned) as versioned from register_first group by key

        -- The operation that gives a value its place: its CAS, or the one that reports its version.
        create view register_placers as
        select l.key, l.value, l.op
        from register_links l join register_first_keys f on l.key = f.key and f.versioned = 0
        union all
        select u.key, u.value, min(u.op) from (
            select key, value, op, version from register_seen
            union all select key, value, op, version from register_kept) u
            join register_first_keys f on u.key = f.key and f.versioned = 1
        where u.version is not null group by u.key, u.value

        -- The CAS that replaced a value.
        create view register_replacers as
        select l.key, l.expected as value, min(l.op) as op
        from register_links l join register_first_keys f on l.key = f.key
        group by l.key, l.expected having count(*) = 1

        -- The zones whose ends the first findings name.
        create table register_first_zones as
        select z.key, z.first_ret, z.last_call
        from register_zones z join register_first f on z.key = f.key
        where f.across = 1 and (z.last_call = f.late_call or z.first_ret = f.value_time)
        group by z.key, z.first_ret, z.last_call

        -- The operations at the moments that the first findings name.
        create table register_first_moments as
        select m.key, m.moment, m.is_return, m.op, m.kind, m.value
        from register_moments m join (
            select key, late_call as moment from register_first
            union select key, value_time from register_first
            union select key, first_ret from register_first_zones
            union select key, last_call from register_first_zones) n on m.key = n.key and m.moment = n.moment
        """),
    evidence=f"""
        select g.*, case when {_DIFFERENT_VALUES} then 1 else 0 end as chained, p.op as place_op, l.op as late_place_op,
            b.op as earlier_place_op, r.op as replacer_op, n.op as earlier_replacer_op
        from (
            select f.key, f.late_call, coalesce(min(w.ret), f.value_time) as value_time,
                f.overtaken, f.across, f.versioned,
                min(l.op) as late_op, min(l.kind) as late_kind, min(l.value) as late_value,
                coalesce(min(w.op), min(t.op)) as value_op, coalesce(min(w.value), min(t.value)) as value,
                coalesce(min(n.ret), min(z.first_ret)) as earlier_time, coalesce(min(n.op), min(b.op)) as earlier_op,
                coalesce(min(n.value), min(b.value)) as earlier_value, min(w.call) as value_call,
                case when min(w.op) is null then min(e.op) end as last_op
            from register_first f
                left join register_witnesses w on f.key = w.key and f.late_call = w.late_call
                left join register_earlier_witnesses n on f.across = 1 and f.key = n.key and f.late_call = n.late_call
                left join register_first_moments l on f.key = l.key and f.late_call = l.moment and l.is_return = 0
                left join register_first_moments t on f.key = t.key and f.value_time = t.moment and t.is_return = 1
                left join register_first_zones z on f.across = 1 and f.key = z.key and f.late_call = z.last_call
                left join register_first_moments b on z.key = b.key and z.first_ret = b.moment and b.is_return = 1
                left join register_first_zones x on f.across = 1 and f.key = x.key and f.value_time = x.first_ret
                left join register_first_moments e on x.key = e.key and x.last_call = e.moment and e.is_return = 0
            group by f.key, f.late_call, f.value_time, f.overtaken, f.across, f.versioned) g
            left join register_placers p on g.across = 0 and g.key = p.key and g.value = p.value
            left join register_placers l on (g.versioned = 1 or (g.across = 1 and {_DIFFERENT_VALUES}))
                and g.key = l.key and g.late_value = l.value
            left join register_placers b on g.across = 1 and {_DIFFERENT_VALUES}
                and g.key = b.key and g.earlier_value = b.value
            left join register_replacers r on g.versioned = 0 and (g.across = 0 or {_DIFFERENT_VALUES})
                and g.key = r.key and g.late_value = r.value
            left join register_replacers n on g.across = 1 and {_DIFFERENT_VALUES}
                and g.key = n.key and coalesce(g.earlier_value, {INITIAL}) = n.value
        {order_by("g.key, g.late_call")}
        """,
    examined="select count(*) as examined from register_placed",
    exposure=Exposure(
        rows=f"""
            select w.key, count(*) as claims,
                {total_of("case when r.last > greatest(w.ret, b.since) then 1 else 0 end")} as exposed
            from register_writers w cross join exposure_bound b
                left join register_unclear u on w.key = u.key
                left join (
                    select key, max(last) as last from (
                        select key, max(call) as last from register_seen group by key
                        union all
                        select key, max(call) from register_writers where kind = 'cas' and ret < {INFINITY} group by key
                        ) as uses
                    group by key) r on w.key = r.key
            where w.ret < {INFINITY} and u.key is null group by w.key
            """,
        nouns="writes",
        asserted="acknowledged",
        observed="followed by a read of its register",
        no_claims="no write was acknowledged",
        remedy="read each register at the end",
    ),
    # The claim is one of four sentences, for example:
    # - inside a chain: "In r 2 comes after 1 by version, and 2 was there by T (A), yet B began to read 1 only at T."
    #   Without versions it says "by its CAS (C)".
    # - between chains: "key r held 1 by T (C); then 2 was there by T (A), called at T; then B began to read 1 at T."
    # - the first chain was there from the beginning: "key r had its initial value; then 2 was there by T (A), ..."
    # - no single operation lies in between: "key r held 1 by T (C); 2 was still in use after that (D, called at T) ..."
    claim=f"[across=0?In {{key}} {describe_value('value')} comes after {describe_value('late_value')} by "
    f"[versioned=1?version|its CAS ([{{place_op}}|an unknown process])], and {_VALUE_SEEN}, yet {_LATE} only at "
    f"{{late_call:time}}|[earlier_time={-INFINITY}?key {{key}} had its initial value|key {{key}} held "
    f"{describe_value('earlier_value')} by {{earlier_time:time}} ({{earlier_op}})]; [value_call?then {_VALUE_SEEN}, "
    f"called at {{value_call:time}}|{describe_value('value')} was still in use after that ({{last_op}}, called at "
    f"{{last_op:called}}), and {_VALUE_SEEN}]; then {_LATE}[chained=1? (of the same chain of CAS operations)] at "
    "{late_call:time}].",
    operations=(
        "late_op",
        "value_op",
        "earlier_op",
        "last_op",
        "place_op",
        "late_place_op",
        "earlier_place_op",
        "replacer_op",
        "earlier_replacer_op",
    ),
    more="{overtaken-1}",  # how many operations are not listed
)
