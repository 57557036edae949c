"""A replica that joins the in-sync set has all that is committed, because it may be the next leader (KAFKA-7128).

The check reads ``isr-change``: ``position`` is how far the joining replica had come when the leader of this ``epoch``
proposed the change, and ``high_watermark`` is the leader's at that moment. The position must reach the high watermark.
It must also reach what is known to be committed in earlier epochs, which a leader with a lagging high watermark need
not know yet. So a joining replica must have reached the start of the epoch, too. The views of ``leader-completeness``
count what was committed; a topic that any client asked to delete is not judged.
"""

from typing import Final

from assay.checkers.check import Check, OffsetRange, View
from assay.checkers.sql_idioms import BEGUN, first_rows_subquery, order_by

MEMBER_COMPLETENESS: Final = Check(
    anomaly="member-completeness",
    meaning="a replica joined the in-sync set without records that were committed",
    views=(
        View(
            "member_joins",
            """
            select key, epoch, position, max(high_watermark) as mark from events
            where event = 'isr-change' and position is not null and epoch is not null group by key, epoch, position
            """,
        ),
    ),
    violations=f"""
        select key, epoch, position, max(before) as before from (
            select key, epoch, position, mark as before from member_joins
            union all
            select j.key, j.epoch, j.position, l.before from member_joins j
                join epoch_levels l on l.key = j.key and l.epoch = j.epoch and l.position is not null
                left join epoch_kept k on k.key = j.key cross join log_declared d
                cross join (select count(*) as losses from (
                    select id from faults where loses_unsynced and {BEGUN} group by id) as f) p
            where l.before - case when k.key is null then d.unflushed * p.losses else 0 end > j.position) as known
        where before > position group by key, epoch, position
        """,
    evidence=f"""
        select f.key, f.epoch, f.position, f.before, f.before - 1 as last, f.former,
            min(m.node) as knower, min(m.op) as end_op, min(e.node) as node, min(e.time) as moment
        from (
            select f.key, f.epoch, f.position, f.before, max(m.epoch) as former
            from {first_rows_subquery("found_member_completeness", "key, epoch, position")} f
                left join epoch_marks m on f.key = m.key and f.before = m.mark and m.epoch < f.epoch
            group by f.key, f.epoch, f.position, f.before) f
            left join epoch_marks m on f.key = m.key and f.before = m.mark and f.former = m.epoch
            join events e on e.event = 'isr-change' and e.key = f.key and e.epoch = f.epoch
                and e.position = f.position
        group by f.key, f.epoch, f.position, f.before, f.former
        {order_by("f.key, f.epoch, f.position")}
        """,
    examined="select count(*) as examined from member_joins",
    claim="{node:capital}, the leader of {key} in epoch {epoch}, let a replica into the in-sync set that had come to "
    "offset {position}, although [former?[{end_op} had been answered that the log goes to {before}|{knower} had "
    "announced the high watermark {before}] in epoch {former}|its own high watermark was {before}].",
    time="moment",
    about=(OffsetRange("position", "last"),),
    explained_by=("inconsistent-offset", "lost-write", "vanished", "leader-completeness"),
    optional=True,  # a run in which no replica ever left has none that comes back
)
