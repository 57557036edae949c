"""Look-ups by time return the first offset whose record was created at the requested time or later.

Create times are taken from polls, because a broker may set its own create times. There are two violations:

- A record below the answer is young enough. It counts if an acknowledgement or a poll showed it before the look-up was
  called, retention cannot have deleted it during the run, and its topic is not compacted. The answer "none" is a
  statement about the log's end, so it counts only if the contract declares ends linearizable.
- The answer's own record is older than the requested time. This is always wrong.

``views`` explains ``log_judged``. ``keep_undeletable`` (``retention``) keeps the records that no retention limit can
have deleted.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, Table, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.judging.verdict import MOST_FINDINGS
from assay.checkers.log.retention import keep_undeletable
from assay.checkers.sql_idioms import first_rows_subquery, greatest_before, order_by

LOOK_UPS: Final = Table(
    "log_look_ups",
    """
    select op, sub, key, timestamp, position, call from log_effects
    where kind = 'look-up' and outcome = 'ok' and ret is not null and timestamp is not null
    """,
)


def _select_greatest_before(rows: str, value: str, order: str) -> str:
    """Returns SQL: ``rows``, each with the greatest ``value`` of the records (``is_look_up`` 0) before it."""
    return f"""
        select op, sub, is_look_up, timestamp,
            {greatest_before(f"case when is_look_up = 0 then {value} end", by="key", order=order)} as latest
        from ({rows}) as points
        """


TIME_LOOK_UP: Final = Check(
    anomaly="time-look-up",
    meaning="a look-up by time did not return the first record of that time or later",
    views=(
        LOOK_UPS,
        *parse_views(f"""
        -- Records with their create time, and the time when each was first known. `must_exist`: neither retention nor
        -- compaction can have deleted it.
        create table log_dated_records as
        select p.key, p.position, p.value, t.timestamp, t.op,
            least(coalesce(p.acked, {INFINITY}), coalesce(p.seen, {INFINITY})) as known,
            case when p.judged = 1 and p.compacted is null then 1 else 0 end as must_exist
        from log_judged p join (
            select e.key, e.value, e.position, min(e.timestamp) as timestamp, min(e.op) as op
            from log_effects e join (select key from log_look_ups group by key) k on e.key = k.key
            where e.kind = 'observe' and e.value is not null and e.timestamp is not null
            group by e.key, e.value, e.position having min(e.timestamp) = max(e.timestamp)) t
            on p.key = t.key and p.value = t.value and p.position = t.position

        -- Records that retention cannot have deleted during the run. They depend on more than their key's effects
        -- (`reads_other_keys`): on the topic's settings and on all nodes' clocks.
        create table log_lasting_records (reads_other_keys) as
        select d.key, d.position, d.timestamp, d.known, d.op, d.value
        from log_dated_records d {keep_undeletable("d")} and d.must_exist = 1

        -- Look-ups that may have missed a record: one young enough was known before, and one lies below the answer.
        -- This is only a filter: usually both conditions are met by the same record, and the violations check that.
        create table log_look_up_suspects as
        select q.op, q.sub, q.key, q.timestamp, q.position, q.call
        from log_look_ups q join ({
            _select_greatest_before(
                '''
                select key, known as moment, 0 as is_look_up, -1 as op, -1 as sub, timestamp from log_lasting_records
                union all select key, call, 1, op, sub, timestamp from log_look_ups
                ''',
                "timestamp",
                "moment, is_look_up, op, sub",
            )
        }) m on q.op = m.op and q.sub = m.sub and m.is_look_up = 1 join ({
            _select_greatest_before(
                f'''
                select key, position, 1 as is_record, 0 as is_look_up, -1 as op, -1 as sub, timestamp
                from log_lasting_records
                union all
                select key, coalesce(position, {INFINITY}), 0, 1, op, sub, timestamp from log_look_ups
                ''',
                "timestamp",
                "position, is_record, op, sub",
            )
        }) p on q.op = p.op and q.sub = p.sub and p.is_look_up = 1
        cross join log_declared d
        where m.latest >= q.timestamp and p.latest >= q.timestamp
            and (q.position is not null or d.linearizable_ends = 1)
        """),
    ),
    violations="""
        select s.op, s.sub, s.key, s.timestamp, s.position, 1 as late, min(r.position) as missed
        from log_look_up_suspects s join log_lasting_records r on s.key = r.key
        where r.timestamp >= s.timestamp and r.known < s.call
            and (s.position is null or r.position < s.position)
        group by s.op, s.sub, s.key, s.timestamp, s.position
        union all
        select q.op, q.sub, q.key, q.timestamp, q.position, 0, q.position
        from log_look_ups q join log_dated_records r on q.key = r.key and q.position = r.position
        group by q.op, q.sub, q.key, q.timestamp, q.position having max(r.timestamp) < q.timestamp
        """,
    evidence=f"""
        select f.key, f.op as asked_op, f.timestamp, f.position, f.late,
            f.missed, max(r.timestamp) as created, min(r.op) as seen_op
        from {first_rows_subquery("found_time_look_up", "key, op, sub, late")} f
            join log_dated_records r on f.key = r.key and f.missed = r.position
        group by f.key, f.op, f.sub, f.timestamp, f.position, f.late, f.missed
        {order_by("f.key, f.op, f.sub, f.late")} limit {MOST_FINDINGS}
        """,
    examined="select count(*) as examined from log_look_ups",
    kinds=("look-up",),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{asked_op:capital} asked {key} at {asked_op:called} for the first record created at {timestamp} ms or "
    "later and got [offset {position}|that there is none], [late=1?though offset {missed} holds one of {created} ms "
    "(read by {seen_op} at {seen_op:called}), known before it|whose record is older: of {created} ms (read by "
    "{seen_op} at {seen_op:called})].",
    optional=True,  # a run without data for it may pass
)
