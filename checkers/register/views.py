"""Tables that the register checks share: the writes and reads of each value, and its place in a chain of values.

A register workload records itself in ``effects`` as follows (``key`` is the register's name; values are unique per
key):

- ``register-write``: ``value``. ``register-cas``: ``expected`` -> ``value``. Outcomes are ok, fail (certainly not done)
  or info.
- ``register-read``: ``value``; only ok reads count. Null is the initial value, also in ``expected``. A failed CAS that
  returns the current value gives a ``register-read`` row with outcome ok in addition to its own.
- ``commit`` is a write, and ``fetched`` a read, of a group's offset in one partition: ``value`` is the commit's number,
  because offsets are not unique; ``position`` is the offset.
- ``version``: the value's version, if the system returns one (a znode's version, an etcd revision). It rises with every
  change of the register.

A *cluster* is a value with all operations on it. With unique values a register holds each value once, so clusters do
not interleave. A successful CAS a -> b puts b's cluster right behind a's cluster. Such clusters form a *chain*, which
starts at a plain write or at the initial value. If every value of a key has a version, the versions give the places.

A write of unknown outcome is kept iff its value was read or a kept CAS expected it. With unique values this is exact,
because an unobserved write may never have happened. Reads of unknown outcome and failed operations are dropped.
"""

from typing import Final

from assay.checkers.check import View, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import RETURNED

INITIAL: Final = -INFINITY
"""Stands for the initial value, which is null in the history, because null is not equal to itself in joins."""

ROWS: Final = View(
    "register_rows",
    f"""
    select e.op, e.sub, e.process, e.key,
        case e.kind when 'register-write' then 'write' when 'register-read' then 'read' when 'register-cas' then 'cas'
            when 'commit' then 'write' else 'read' end as kind,
        coalesce(e.value, {INITIAL}) as value, coalesce(e.expected, {INITIAL}) as expected,
        e.version, e.call,
        {RETURNED} as ret, e.outcome
    from effects e
    where e.kind in ('register-write', 'register-read', 'register-cas', 'commit', 'fetched')
    """,
)


SOURCE_VIEWS: Final = parse_views(f"""
    -- Writes and CAS operations that did not fail.
    create table register_writers as
    select key, value, op, sub, kind, expected, version, call, ret, outcome
    from register_rows where kind in ('write', 'cas') and outcome <> 'fail'

    -- Keys whose values are not unique (`value` is one that was written twice): chains prove nothing about them.
    create table register_unclear (high_cardinality) as
    select key, min(value) as value, max(writers) as writers from (
        select key, value, count(*) as writers,
            max(case when value = {INITIAL} or (kind = 'cas' and expected = value) then 1 else 0 end) as repeated
        from register_writers group by key, value) as written
    where writers > 1 or repeated = 1 group by key

    -- Reads that ended ok, of keys that can be judged.
    create view register_reads as
    select r.key, r.value, r.op, r.sub, r.version, r.call, r.ret
    from register_rows r left join register_unclear u on r.key = u.key
    where r.kind = 'read' and r.outcome = 'ok' and r.ret < {INFINITY} and u.key is null

    -- Values whose write was not acknowledged.
    create table register_unknown_outcomes as
    select key, value from register_writers where outcome <> 'ok' group by key, value

    -- Writes of unknown outcome whose value was read; there are few.
    create table register_confirmed as
    select d.key, d.value
    from register_unknown_outcomes d join register_reads r on d.key = r.key and d.value = r.value
    group by d.key, d.value

    -- `certain` is 1 for a write that was acknowledged or read. Any other write counts only if a kept CAS expected it.
    create view register_written as
    select w.key, w.value, w.op, w.sub, w.kind, w.expected, w.version, w.call, w.ret,
        case when w.outcome = 'ok' or c.value is not null then 1 else 0 end as certain
    from register_writers w
        left join register_confirmed c on w.key = c.key and w.value = c.value
        left join register_unclear u on w.key = u.key
    where u.key is null
    """)
"""The views in order. Then ``chains.find_kept`` makes ``register_kept`` from ``register_written``."""


CLUSTER_VIEWS: Final = parse_views(f"""
    -- Reads, with the write of the value.
    create table register_seen as
    select r.key, r.value, r.op, r.sub, r.version, r.call, r.ret, w.op as write_op, w.call as write_call
    from register_reads r left join register_kept w on r.key = w.key and r.value = w.value

    -- Each kept CAS with the writer of the value that it expected: the CAS saw that value, as a read does.
    create table register_links as
    select c.key, c.value, c.expected, c.op, c.sub, c.version, c.call, c.ret, w.op as write_op, w.call as write_call
    from register_kept c left join register_kept w on c.key = w.key and c.expected = w.value
    where c.kind = 'cas'

    -- Aggregates per (key, value). The times of an operation do not count if it returned before the write of the value
    -- that it saw was called (`future-read`).
    create table register_clusters (high_cardinality) as
    select key, value, min(ret) as first_ret, max(call) as last_call, min(version) as low_version,
        max(version) as high_version, min(expected) as expected, max(chained) as chained
    from (
        select key, value, call, ret, version, cast(null as bigint) as expected, 0 as chained
        from register_seen where write_call is null or ret >= write_call
        union all
        select key, value, call, ret, version, cast(null as bigint), 0 from register_kept where kind = 'write'
        union all
        select key, value,
            case when write_call is null or ret >= write_call then call end,
            case when write_call is null or ret >= write_call then ret end, version, expected, 1
        from register_links) as operations
    group by key, value

    -- Registers whose values all have a version.
    create table register_versioned as
    select key from register_clusters where value <> {INITIAL}
    group by key having count(*) = count(low_version)
    """)
"""The views in order. Then ``chains.find_ancestors`` makes ``register_ancestors``. For each value that a CAS wrote, it
has the start of the chain (``ancestor``) and the ``distance`` to it. ``no_start`` is 1 if the chain leads into a cycle
and has no start.
"""


PLACE_VIEWS: Final = parse_views(f"""
    -- `chain` is the value at the chain's start; a key with versions is one single chain.
    create table register_placed as
    select c.key, c.value, c.first_ret, c.last_call,
        case when v.key is not null then {INITIAL} else coalesce(a.ancestor, c.value) end as chain,
        case when v.key is null then coalesce(a.distance, 0) when c.value = {INITIAL} then {INITIAL}
            else c.low_version end as place,
        case when v.key is not null then 1 else 0 end as versioned
    from register_clusters c
        left join register_ancestors a on c.key = a.key and c.value = a.value
        left join register_versioned v on c.key = v.key
    where c.first_ret is not null and coalesce(a.no_start, 0) = 0

    -- The operation of each call and return, which is unique because times increase. Only evidence reads this view.
    create view register_moments as
    select key, call as moment, 0 as is_return, op, 'read' as kind, value from register_seen
    union all select key, ret, 1, op, 'read', value from register_seen
    union all select key, call, 0, op, kind, value from register_kept
    union all select key, ret, 1, op, kind, value from register_kept
    """)
