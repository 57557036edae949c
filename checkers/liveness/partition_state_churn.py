"""A partition's state is not written again and again without a cause.

A leader epoch rises for a reason: a broker comes or goes, an operator requests it, replicas move. Without such a change
the epoch stops rising by the contract's obedience deadline, because brokers have then done all that the controller
commanded. Later the epoch may rise once, because a controller balances leaders at long intervals.

The check counts the rises after half of the deadline. It reports the partition if there are ``MIN_RISES`` or more, and
one of them comes after the whole deadline. Then two writers probably have conflicting goals and never stop.

``snapshots`` creates ``rest_looks``, the snapshots that count, and ``rest_busy``, the partitions that are moved or
deleted. ``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import parse_views
from assay.checkers.liveness.snapshots import make_snapshot_check
from assay.checkers.sql_idioms import row_number, select_first

MIN_RISES: Final = 3
"""Minimum number of rises of the leader epoch in a finding."""


RESTLESS_STATE: Final = make_snapshot_check(
    anomaly="restless-state",
    meaning="a partition's state was written again and again, although nothing that it depends on changed",
    views=parse_views(f"""
        -- States of partitions that are neither moved nor deleted (`rest_busy`). `zxid_sum` changes with each
        -- registration of a broker.
        create view churn_states as
        select p.look, p.key, p.zxid, p.replicas, p.epoch, l.zxid_sum, l.time, l.ended
        from looks p join rest_looks l on l.look = p.look
            left join rest_busy m on m.look = p.look and m.key = p.key
        where p.what = 'partition' and p.epoch >= 0 and m.key is null

        -- `island` numbers uninterrupted sequences of looks without a change of the topic, its replicas and the
        -- brokers.
        create table churn_stretches as
        select look, key, zxid, replicas, epoch, zxid_sum, time, ended,
            look - {row_number(by="key, zxid, replicas, zxid_sum", order="look")} as island
        from churn_states

        -- Stretches that last until the last look.
        create table churn_intervals as
        select g.key, g.zxid, g.replicas, g.zxid_sum, g.island, g.since, g.until, d.obedience_deadline as deadline
        from (
            select key, zxid, replicas, zxid_sum, island, min(ended) as since, max(time) as until, max(look) as look
            from churn_stretches group by key, zxid, replicas, zxid_sum, island) g
            join (select max(look) as look from rest_looks) e on e.look = g.look
            cross join deadlines_declared d
        """),
    violations=f"""
        select b.key, b.since, b.until, b.deadline, min(s.epoch) as low, max(s.epoch) as high,
            min(s.time) as settled
        from churn_intervals b join churn_stretches s on s.key = b.key and s.zxid = b.zxid
            and s.replicas = b.replicas and s.zxid_sum = b.zxid_sum and s.island = b.island
        where 2 * (s.time - b.since) >= b.deadline
        group by b.key, b.since, b.until, b.deadline
        having max(s.epoch) - min(s.epoch) >= {MIN_RISES}
            and max(s.epoch) > max(case when s.time - b.since < b.deadline then s.epoch end)
        """,
    evidence=select_first("found_restless_state", "key"),
    claim="The leader epoch of {key} went on rising, from {low} at {settled:time} to {high} at {until:time}, although "
    "since {since:time} no broker had come or gone, no move was under way and no fault in force; the contract's "
    "deadline is {deadline:time}.",
)
