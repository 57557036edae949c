"""Snapshots of a quiescent system: a wrong state is a finding if all snapshots show it for longer than its deadline.

The tables call a snapshot a *look*. A look reads the whole system: ZooKeeper, the brokers' own reports, and the disks.
Its parts are read one after another, so a single look proves nothing. A *stretch* is a sequence of looks after the last
fault was healed and its targets had recovered. No two successive looks of a stretch are further apart than
``MAX_PAUSE``. If a fault was never healed, there is no stretch.

A state lasts as long as its row is equal in successive looks. The rows include ``zxid_sum``, the sum of the zxids of
all broker registrations, and some include epochs. So after a restart, or in a new epoch, a new interval begins. All
times are by the harness's clock.

``docs/reference/history.md`` describes all kinds of rows. The checks read:

- ``look``: one per look, written when the look is complete
- ``broker``: a registered broker. ``answer``: the broker reported its replicas' roles and the topics it knows.
- ``topic``, ``partition``, ``move``, ``deletion``, ``settings`` (a topic has settings of its own): state in ZooKeeper
- ``role`` (a replica), ``known`` (a topic), ``routed`` (a partition's leader and replicas), ``flushed`` (how much of a
  log is on the disk): what a broker reports
- ``folder``, ``segment``: files on a disk
"""

from functools import partial
from typing import Final

from assay.checkers.check import Check, View, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.exposure import Exposure
from assay.checkers.sql_idioms import LARGE, STRUCK, cast_large, extract_topic, previous, row_number

MAX_PAUSE: Final = 5_000_000_000
"""Maximum nanoseconds between two looks of a stretch. After a longer pause the state in between is unknown."""

ON_NODE: Final = "{key} on {node}"
TOPIC_ON_NODE: Final = "{topic} on {node}"
BROKER: Final = "broker {node}"
FOLLOWING: Final = "{node} following {leader_node}"
"""Subjects of findings: a partition on one node, a topic on one node, a whole broker, and one broker's replication from
another broker."""

QUIET: Final = View(
    "rest_quiet",
    f"""
    select coalesce(max(until), 0) as since from (
        select id, case
            when max(case when {STRUCK} then 1 else 0 end) = 1
                and max(case when phase = 'healed' then 1 else 0 end) = 0 then {INFINITY}
            else coalesce(max(case when phase in ('healed', 'recovered') then time end), 0) end as until
        from faults group by id) as lasting
    """,
)
"""The time at which the last fault was healed and its targets had recovered; infinite if a fault was never healed."""


make_snapshot_check = partial(
    Check,
    examined="select count(*) as examined from rest_looks",
    time="until",
    needs_end=True,  # proves nothing about an interrupted run
    exposure=Exposure(
        rows="""
            select 'looks' as key, count(*) as claims, count(r.look) as exposed
            from looks l left join rest_looks r on l.look = r.look where l.what = 'look'
            """,
        nouns="looks",
        asserted="taken",
        observed="part of the last stretch of looks after the last fault",
        at_any_time=True,
    ),
)
"""Creates a check of the looks of the last stretch. The time of a finding is that of the last look that shows it."""


REST_VIEWS: Final = (
    QUIET,
    *parse_views(f"""
    -- The looks of the last stretch, when the system is at rest. A look lasts from `time` to `ended`, and `wall_ms` is
    -- its time of day. `unsettled`: the system still has unfinished work. Numbers of looks have no gaps.
    create table rest_looks as
    select l.look, l.time, l.ended, l.wall_ms, l.unsettled, coalesce(r.zxid_sum, 0) as zxid_sum
    from looks l cross join rest_quiet q cross join (
        select coalesce(max(case when pause > {MAX_PAUSE} then look end), 0) as look from (
            select look, time - {previous("ended", by="what", order="look")} as pause
            from looks where what = 'look') as pauses) b
        left join (
            select look, cast(sum({cast_large("zxid")}) as {LARGE}) as zxid_sum from looks where what = 'broker'
            group by look) r
        on r.look = l.look
    where l.what = 'look' and l.look >= b.look and l.time >= q.since

    -- The registered brokers in each look.
    create view rest_brokers as
    select look, node, broker from looks where what = 'broker'

    -- Partitions that are moved or deleted: other checks judge whether that ends.
    create view rest_busy as
    select look, key from looks where what = 'move'
    union
    select p.look, p.key from looks p
        join looks d on d.look = p.look and d.what = 'deletion' and d.key = {extract_topic("p.key")}
    where p.what = 'partition'

    -- Partitions with a registered leader (`leader_node`), in each look of the last stretch.
    create view rest_led as
    select p.look, p.key, p.epoch, p.leader, b.node as leader_node, p.zxid, p.replicas, p.members
    from looks p join rest_looks l on l.look = p.look
        join rest_brokers b on b.look = p.look and b.broker = p.leader
    where p.what = 'partition'
    """),
)


def select_lasting(states: str, columns: str, deadline: str, *, duration: str = "") -> str:
    """Returns SQL: states that all looks up to the last one show, for at least the time of a deadline.

    - ``states``: a view with ``columns`` and ``look``, none of them null
    - ``deadline``: the name of one of the contract's deadlines
    - ``duration``: SQL for another minimum duration, over ``columns`` as ``g`` and the contract's deadlines as ``d``.
      With "0" two looks are enough.

    The result has ``columns``, ``last_look``, the interval from ``since`` to ``until``, and the ``deadline``.
    """
    selected = ", ".join(f"g.{column.strip()} as {column.strip()}" for column in columns.split(","))
    return f"""
        select {selected}, g.last_look, a.ended as since, b.time as until, d.{deadline} as deadline
        from (
            select {columns}, zxid_sum, min(look) as first_look, max(look) as last_look from (
                select {columns}, zxid_sum, look,
                    look - {row_number(by=f"{columns}, zxid_sum", order="look")} as island
                from (
                    select s.*, l.zxid_sum from {states} s join rest_looks l on l.look = s.look) as living
                ) as numbered
            group by {columns}, zxid_sum, island) g
            join rest_looks a on a.look = g.first_look
            join rest_looks b on b.look = g.last_look
            join (select max(look) as look from rest_looks) e on e.look = b.look
            cross join deadlines_declared d
        where a.ended + {duration or "d." + deadline} <= b.time
        """
