"""Dependencies between committed transactions, and the selection of those that can be on a cycle.

**Edges.** The edges are Adya's direct dependencies (Weak Consistency, MIT 1999). ``ww``: the target wrote the version
after the source's version. ``wr``: the target read the source's version. ``rw``: the source read a version older than
the target's. The order of a list's versions is known (``views``, which creates and explains all tables that are read
here). For registers, two facts hold in every history: nothing comes before the initial value, and a transaction's write
is later than the version that it read before. The edge of the second fact is reported as wr, so that a claim is never
too strong.

**Fans.** A *follower* of a version is a transaction that is only known to have written some later version. A list has
one version with followers: the longest read. Its followers appended elements that no read shows. For registers, a
writer follows the value that it read before. A blind writer follows the initial value. Every reader of the version
comes before every follower.

- There may be many pairs of reader and follower. So all readers lead to one auxiliary node, the *fan*, which leads to
  all followers. Its id is below 0.
- A reader may be a follower, too, and the fan would lead back to it. Such a reader gets direct edges to the other
  followers (``OVERTAKING``). If it wrote the next version, the other followers wrote later ones, and the edges are ww.
  Otherwise the edges may be wrong. But then another follower wrote the next version, so the reader's update is lost,
  which is a G-single by itself. So in both cases, a cycle with these edges proves that there is a G-single or a
  stronger class. They count like ww in the search for G-single and weaker classes, and are ignored for stronger ones.
- If a version has several such readers, only two of them get these edges. Their edges to each other already are a
  cycle.

**Windows.** A cycle needs an edge from a later call to an earlier call. No cycle crosses a moment that no such edge
spans. So these moments divide the nodes, ordered by call, into *windows*. A running maximum of the calls in
``txn_spans`` finds the moments. Edges between windows, and windows of a single node, are no candidates.
"""

from typing import Final

from assay.checkers.check import parse_views
from assay.checkers.sql_idioms import ROWS_BEFORE, ROWS_SO_FAR, order_by
from assay.checkers.transactions.views import INITIAL

WW, WR, OVERTAKING, RW, THEN = range(5)
"""Kinds of edges, the strongest evidence first. ``OVERTAKING`` leads from a follower that read the version to another
follower, and ``THEN`` from a fan to its followers."""

_MANY_SUBS: Final = 2**20
"""More than the rows of a transaction. A fan's id is computed from its first follower's ``op`` and ``sub`` (the number
of a row in its transaction)."""

EDGE_VIEWS: Final = parse_views(f"""
    -- The last run of each list. A run is a sequence of adjacent elements of one transaction (`txn_list_order`).
    create table txn_last_runs as
    select key, max(run) as run from txn_list_order group by key

    -- Transactions that appended the last known element of each list. Their unseen elements directly follow it.
    create table txn_last_appenders as
    select s.key, s.op, max(s.value) as value
    from txn_list_order s join txn_last_runs e on s.key = e.key and s.run = e.run group by s.key, s.op

    -- The followers of each version: for a register, `version` is its value; for a list, 0 is its longest read.
    create table txn_followers as
    select key, version, op, min(sub) as sub, min(value) as value, min(call) as call from (
        select w.key, cast(0 as bigint) as version, w.op, w.sub, w.value, w.call
        from txn_writers w left join txn_list_order s on w.key = s.key and w.value = s.value
            left join txn_disordered d on w.key = d.key left join txn_last_appenders l on w.key = l.key and w.op = l.op
        where w.listed = 1 and s.key is null and d.key is null and l.op is null
        union all
        select w.key, coalesce(r.value, {INITIAL}), w.op, w.sub, w.value, w.call
        from txn_writers w left join (
                select key, op, value from txn_register_seen where rank = 1 and (writer is null or writer <> op)) r
            on w.key = r.key and w.op = r.op
        where w.listed = 0 and w.final = 1) as placed
    group by key, version, op

    -- Transactions before all followers of a version: its readers, and for a list the appender of its last known
    -- element.
    create table txn_sources as
    select s.key, cast(0 as bigint) as version, s.op, {RW} as kind, s.value as low
    from txn_list_seen s left join txn_last_runs e on s.key = e.key
    where s.run = coalesce(e.run, 0) and (s.writer is null or s.writer <> s.op)
    union all
    select key, cast(0 as bigint), op, {WW}, value from txn_last_appenders
    union all
    select key, coalesce(value, {INITIAL}), op, {RW}, value from txn_register_seen
    where writer is null or writer <> op

    -- The followers of a version: their number (`many`), the lowest transaction (`least`), and the id of their fan
    -- (`node`). A single follower needs no fan.
    create table txn_fans as
    select n.key, n.version, n.many, n.least, n.call, 0 - f.op * {_MANY_SUBS} - f.sub - 1 as node, f.value
    from (
        select key, version, count(*) as many, min(op) as least, min(call) as call
        from txn_followers group by key, version) n
        join txn_followers f on n.key = f.key and n.version = f.version and n.least = f.op

    -- Readers of a version that are also its followers.
    create table txn_reading_followers as
    select s.key, s.version, s.op, min(s.low) as low
    from txn_sources s join txn_followers f on s.key = f.key and s.version = f.version and s.op = f.op
    group by s.key, s.version, s.op

    -- Transactions that read two versions of a register: G-single in either order of the two.
    create table txn_repeated_reads as
    select r.key, r.op as first_op, max(coalesce(r.writer, f.writer)) as second_op, min(f.value) as low,
        min(r.value) as high
    from txn_register_seen r join txn_register_seen f on r.key = f.key and r.op = f.op
    where f.rank = 1 and r.rank > 1 and r.writer is distinct from f.writer
        and (r.writer is null or r.writer <> r.op) and (f.writer is null or f.writer <> f.op)
    group by r.key, r.op

    -- `low`: the version that the source wrote or read, null for the initial one. `high`: the version that the target
    -- wrote or read. The version is null at an end that is a fan.
    create table txn_edges as
    select former as source, op as target, {WW} as kind, key, former_value as low, value as high from txn_list_order
    where changed = 1 and former is not null
    union all
    select writer, op, {WR}, key, value, value from txn_list_seen where writer is not null and writer <> op
    union all
    select writer, op, {WR}, key, value, value from txn_register_seen where writer is not null and writer <> op
    union all
    select r.op, s.op, {RW}, r.key, r.value, s.value
    from txn_list_seen r join txn_list_order s on r.key = s.key and s.run = r.run + 1
    where s.changed = 1 and s.op <> r.op and (r.writer is null or r.writer <> r.op)
    union all
    select s.op, f.least, s.kind, s.key, s.low, f.value
    from txn_sources s join txn_fans f on s.key = f.key and s.version = f.version
    where f.many = 1 and s.op <> f.least
    union all
    select s.op, f.node, s.kind, s.key, s.low, cast(null as bigint)
    from txn_sources s join txn_fans f on s.key = f.key and s.version = f.version
        left join txn_reading_followers t on s.key = t.key and s.version = t.version and s.op = t.op
    where f.many > 1 and t.op is null
    union all
    select f.node, w.op, {THEN}, f.key, cast(null as bigint), w.value
    from txn_fans f join txn_followers w on f.key = w.key and f.version = w.version where f.many > 1
    union all
    select t.op, w.op, {OVERTAKING}, t.key, t.low, w.value
    from txn_reading_followers t join (
            select key, version, min(op) as least, max(op) as most from txn_reading_followers group by key, version) m
            on t.key = m.key and t.version = m.version
        join txn_followers w on t.key = w.key and t.version = w.version
    where (t.op = m.least or t.op = m.most) and w.op <> t.op

    -- The transactions that count as committed, and the fans.
    create table txn_nodes as
    select r.op as node, min(r.process) as process, min(r.call) as call, min(r.ret) as ret
    from txn_rows r left join txn_observed o on r.op = o.op
    where r.outcome = 'ok' or o.op is not null group by r.op
    union all
    select node, cast(null as int), call, cast(null as bigint) from txn_fans where many > 1

    -- Targets of edges from a later call. `until`: the latest call of such an edge's source.
    create table txn_spans as
    select e.target as node, max(s.call) as until
    from txn_edges e join txn_nodes s on e.source = s.node join txn_nodes t on e.target = t.node
    where t.call < s.call group by e.target

    -- The nodes with the number of their window (`window_id`).
    create table txn_windowed as
    select node, process, call, ret, cast(sum(begins) over ({order_by("call, node")}
        {ROWS_SO_FAR}) as bigint) as window_id
    from (select node, process, call, ret,
            case when reached is null or reached < call then 1 else 0 end as begins from (
        select n.node, n.process, n.call, n.ret, max(s.until) over (
            {order_by("n.call, n.node")} {ROWS_BEFORE}) as reached
        from txn_nodes n left join txn_spans s on n.node = s.node) as reaching) as begun

    -- The nodes of windows with several nodes.
    create table txn_candidates as
    select n.node, n.process, n.call, n.ret, n.window_id
    from txn_windowed n join (select window_id from txn_windowed group by window_id having count(*) > 1) w
        on n.window_id = w.window_id
    """)

CANDIDATE_EDGES: Final = """
    select e.source, e.target, min(e.kind) as kind
    from txn_edges e join txn_candidates s on e.source = s.node
        join txn_candidates t on e.target = t.node and s.window_id = t.window_id
    where e.source <> e.target group by e.source, e.target
    """
"""SQL: the candidate edges. Among parallel edges only the strongest kind is kept."""

CANDIDATE_NODES: Final = """
    select node, coalesce(process, -1) as process, call, coalesce(ret, -1) as ret, window_id from txn_candidates
    """
"""SQL: the nodes of windows with several nodes. ``process`` and ``ret`` are -1 if they are unknown."""
