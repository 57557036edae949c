"""Compares reported log starts, look-ups by time and log ends with each other.

A log begins at or below its end, and a look-up by time finds a record below the end. So after such an answer has
returned, no log end requested later may be lower, and no append that began later may get a lower offset (rule U, see
``order``). This counts only if the contract declares ends linearizable and allows no loss of unflushed records.

A look-up that found an offset states that each record below it is older than the requested time. It also states that
the record at the offset is not older than this time. So two look-ups contradict each other if the one for the later
time got the lower offset. They do not if the record at this offset may have been deleted before the other look-up.

``retention`` creates ``log_start_reports``, ``ends`` creates ``log_ends``, and ``offset_by_time`` creates
``log_look_ups``. ``views`` explains the other tables of the log that this module reads but does not create.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, parse_views
from assay.checkers.log.offset_by_time import LOOK_UPS
from assay.checkers.log.retention import keep_undeletable
from assay.checkers.sql_idioms import (
    first_rows_subquery,
    greatest_before,
    order_by,
    row_number,
)

ANSWER_BEYOND_LOG: Final = Check(
    anomaly="answer-beyond-log",
    meaning="a log ended below an offset at which it was reported to begin, or to have a record, before",
    views=parse_views("""
        -- Answers (starts and look-ups) after which the log's end is `least` or more.
        create view log_floors as
        select key, op, sub, ret, position, position as least, cast(null as bigint) as timestamp from log_start_reports
        union all
        select key, op, sub, ret, position, position + 1, timestamp from log_effects
        where kind = 'look-up' and outcome = 'ok' and ret is not null and timestamp is not null
            and position < 9223372036854775807

        -- Statements that the log's end was at most `position` at some moment after the call.
        create view log_ceilings as
        select key, op, sub, call, position, 0 as appended from log_ends
        union all
        select key, op, sub, call, position, 1 from log_sends
        where outcome = 'ok' and ret is not null and position is not null
        """),
    violations=f"""
        select key, op, sub, ret, position, least, timestamp from (
            select key, op, sub, is_floor, ret, position, least, timestamp,
                min(case when is_floor = 0 then position end) over (partition by key
                    {order_by("back, is_floor, op, sub")}
                    rows between unbounded preceding and 1 preceding) as lowest
            from (
                select f.key, f.op, f.sub, 1 as is_floor, f.ret, 0 - f.ret as back, f.position, f.least, f.timestamp
                from log_floors f
                union all
                select c.key, c.op, c.sub, 0, null, 0 - c.call, c.position, null, null
                from log_ceilings c join (select key from log_floors group by key) k on c.key = k.key
                ) as moments) as bounds
            cross join log_declared d
        where is_floor = 1 and lowest < least and d.linearizable_ends = 1 and d.unflushed = 0
        """,
    evidence=f"""
        select key, floor_op, sub, position, timestamp, ended, appended, ceiling_op from (
            select f.key, f.op as floor_op, f.sub, f.position, f.timestamp, c.position as ended, c.appended,
                c.op as ceiling_op, {row_number(by="f.key, f.op, f.sub", order="c.call, c.op, c.sub")} as rank
            from {first_rows_subquery("found_answer_beyond_log", "key, op, sub")} f
                join log_ceilings c on f.key = c.key and c.call > f.ret and c.position < f.least) as later
        where rank = 1 {order_by("key, floor_op, sub")}
        """,
    examined="select count(*) as examined from log_floors",
    kinds=("start", "look-up"),
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{floor_op:capital} was answered by {floor_op:returned} that {key} [has at offset {position} the first "
    "record of {timestamp} ms or later|begins at offset {position}], but [appended=1?a send of {ceiling_op}, called "
    "at {ceiling_op:called}, got offset {ended}|{ceiling_op}, who asked for its end at {ceiling_op:called}, got "
    "{ended}, which would be below that].",
    about=("[appended=1?|end of {key} in operation {ceiling_op:number}]",),  # subjects of a finding
    explained_by=("high-watermark-regression", "real-time-order", "inconsistent-offset", "misplaced-ack"),
    optional=True,  # a run without data for it may pass
)


LOOK_UP_ORDER: Final = Check(
    anomaly="look-up-order",
    meaning="a look-up for a later time returned a lower offset",
    views=(
        LOOK_UPS,
        *parse_views(f"""
        -- Look-ups whose record no retention limit may have deleted during the run (`keep_undeletable`). The record is
        -- not older than the requested time.
        create table log_lasting_answers (reads_other_keys) as
        select q.op, q.sub, q.key, q.timestamp, q.position
        from log_look_ups q left join log_compacted k on q.key = k.key cross join log_declared d {keep_undeletable("q")}
            and q.position is not null and k.key is null and d.unflushed = 0
        """),
    ),
    violations=f"""
        select key, op, sub, timestamp, position from (
            select key, op, sub, timestamp, position, is_low,
                {
        greatest_before("case when is_low = 0 then position end", by="key", order="timestamp, is_low, op, sub")
    } as highest
            from (
                select key, op, sub, timestamp, position, 1 as is_low from log_lasting_answers
                union all
                select key, op, sub, timestamp, position, 0 from log_look_ups where position is not null
                ) as answers) as ordered
        where is_low = 1 and highest > position
        """,
    evidence=f"""
        select key, low_op, sub, timestamp, position, high_op, earlier, higher from (
            select *, {row_number(by="key, low_op, sub", order="gap, high_op, high_sub")} as rank from (
                select f.key, f.op as low_op, f.sub, f.timestamp, f.position, q.op as high_op, q.sub as high_sub,
                    q.timestamp as earlier, q.position as higher, abs(q.call - w.call) as gap
                from {first_rows_subquery("found_look_up_order", "key, op, sub")} f
                    join log_look_ups w on f.op = w.op and f.sub = w.sub
                    join log_look_ups q on f.key = q.key and q.timestamp <= f.timestamp and q.position > f.position
                ) as pairs) as stated
        where rank = 1 {order_by("key, low_op, sub")}
        """,
    examined="select count(*) as examined from log_look_ups",
    kinds=("look-up",),
    claim="{high_op:capital} asked {key} at {high_op:called} for the first record created at {earlier} ms or later "
    "and got offset {higher}, so all below are older, but {low_op}, who asked at {low_op:called} for {timestamp} ms, "
    "got offset {position}.",
    operations=("low_op", "high_op"),
    explained_by=("time-look-up",),
    optional=True,  # a run without data for it may pass
)
