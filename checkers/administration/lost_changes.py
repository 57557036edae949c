"""Lost changes: an administrator's acknowledged changes (settings, topics, partitions) are in effect after the faults.

A workload records ``setting``, ``topic-create``, ``partitions-add`` and ``topic-delete`` for changes, and
``setting-seen`` and ``topic-seen`` for reads (looks). A look that shows all of a topic's own settings has one row
``setting-seen`` without a ``name``: settings that it does not show have their default. A change to null restores the
default. Two kinds of looks count:

- Looks of the drain are clients' reads. They count if they were called after the last heal and recovery.
- Looks at rest are snapshots of the system after the run, which read the topics in ZooKeeper.

A violation is a state that no change allows, shown by two successive looks of the drain or by all looks at rest.

- Let L be the last change acknowledged before a look was called. A change allows its value if it did not fail, was
  called before the look returned, and may have taken effect after L. It may have taken effect after L if it returned
  after L was called, or if its outcome is unknown.
- Topics only grow, so a look must not show fewer partitions than were acknowledged. A missing topic counts as 0
  partitions. Brokers may learn of a change late. So a look of the drain at topics counts only if the contract's
  obedience deadline has passed since the change and since the last fault. Looks at rest count at once.
- A deletion removes everything, so changes that were called before a deletion had certainly ended are not judged.

Incarnations of a topic are not distinguished, because all of them have one name in the cluster.

``rest_quiet`` has the time ``since`` which no fault is active or recovering. ``rest_looks`` has a row per look at rest,
and ``looks`` the rows of each look (``liveness.snapshots``). ``deadlines_declared`` has the contract's deadlines.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, Family, parse_views
from assay.checkers.liveness.snapshots import REST_VIEWS, select_lasting
from assay.checkers.sql_idioms import RETURNED, extract_topic, previous, row_number, select_first, strip_incarnation

_STATE: Final = "coalesce(cast(e.value as string), 'default')"
_FEWER_PARTITIONS: Final = "l.partitions < w.value and (d.ended is null or d.ended < w.call)"
"""SQL: whether a look ``l`` shows fewer partitions than the change ``w``, and no deletion ``d`` of the topic explains
it."""


DONE_BUT_LOST: Final = Check(
    anomaly="done-but-lost",
    meaning="an acknowledged change is missing, although no one changed it again",
    views=parse_views(f"""
        -- The time by which each topic's last deletion had certainly ended.
        create view lost_deletions as
        select {strip_incarnation("e.key")} as topic, max({RETURNED}) as ended from effects e
        where e.kind = 'topic-delete' and e.outcome <> 'fail' group by {strip_incarnation("e.key")}

        -- Changes of settings that may have happened.
        create table lost_settings as
        select e.op, {strip_incarnation("e.key")} as topic, e.name, e.value, {_STATE} as state, e.call,
            {RETURNED} as ended
        from effects e where e.kind = 'setting' and e.outcome <> 'fail' and e.name is not null

        -- The topics and names of all settings that were ever changed.
        create view lost_settings_named as
        select topic, name from lost_settings group by topic, name

        -- Looks at each setting that was ever changed, one row each. `state` is null if the value is no number and
        -- cannot be compared.
        create table lost_setting_looks as
        select l.op, l.call, l.ret, c.topic, c.name,
            case when s.op is null and l.complete = 1 then 'default' else s.state end as state
        from (
            select e.op, {strip_incarnation("e.key")} as topic, e.call, e.ret,
                max(case when e.name is null then 1 else 0 end) as complete
            from effects e cross join rest_quiet q
            where e.kind = 'setting-seen' and e.outcome = 'ok' and e.phase = 'drain' and e.ret is not null
                and e.call >= q.since
            group by e.op, {strip_incarnation("e.key")}, e.call, e.ret) l
            join lost_settings_named c on c.topic = l.topic
            left join (
                select e.op, e.name, max(cast(e.value as string)) as state from effects e
                where e.kind = 'setting-seen' and e.name is not null group by e.op, e.name) s
            on s.op = l.op and s.name = c.name
        where s.op is not null or l.complete = 1

        -- `changed`: the call of the last change acknowledged before the look. `guilty`: no change allows the state.
        create view lost_settings_judged as
        select l.topic, l.name, l.op, l.call, l.ret, l.state, w.changed,
            case when l.state is not null and w.changed > coalesce(a.ended, -1)
                and (d.ended is null or d.ended < w.changed) then 1 else 0 end as guilty
        from lost_setting_looks l
            left join lost_deletions d on d.topic = l.topic
            left join (
                select l.op, c.topic, c.name, max(c.call) as changed from lost_setting_looks l
                    join lost_settings c on c.topic = l.topic and c.name = l.name
                where c.ended < l.call group by l.op, c.topic, c.name) w
            on w.op = l.op and w.topic = l.topic and w.name = l.name
            left join (
                select l.op, c.topic, c.name, max(c.ended) as ended from lost_setting_looks l
                    join lost_settings c on c.topic = l.topic and c.name = l.name and c.state = l.state
                where c.call <= l.ret group by l.op, c.topic, c.name) a
            on a.op = l.op and a.topic = l.topic and a.name = l.name

        -- Acknowledged numbers of partitions.
        create view lost_partition_counts as
        select e.op, {strip_incarnation("e.key")} as topic, e.value, e.call, e.ret from effects e
        where e.kind in ('topic-create', 'partitions-add') and e.outcome = 'ok' and e.value is not null
            and e.ret is not null

        -- Looks at topics at the end. `asked`: an acknowledged change to more partitions than the look shows.
        create table lost_topics_judged as
        select l.topic, l.op, l.call, l.ret, l.partitions, max(case when {_FEWER_PARTITIONS} then w.op end) as asked
        from (
            select e.op, {strip_incarnation("e.key")} as topic, e.call, e.ret, coalesce(e.value, 0) as partitions
            from effects e where e.kind = 'topic-seen' and e.outcome = 'ok' and e.phase = 'drain'
                and e.ret is not null) l
            cross join rest_quiet q cross join deadlines_declared o
            left join lost_partition_counts w on w.topic = l.topic
                and l.call - o.obedience_deadline >= greatest(w.ret, q.since)
            left join lost_deletions d on d.topic = l.topic
        group by l.topic, l.op, l.call, l.ret, l.partitions

        -- Looks at rest with fewer partitions than were acknowledged.
        create view lost_at_rest as
        select w.topic, w.op, w.value, l.look, l.partitions from lost_partition_counts w
            join (
                select r.look, r.time, m.topic, count(p.key) as partitions
                from rest_looks r cross join (select topic from lost_partition_counts group by topic) m
                    left join looks p on p.look = r.look and p.what = 'partition'
                        and {extract_topic("p.key")} = m.topic
                group by r.look, r.time, m.topic) l
            on l.topic = w.topic and l.time > w.ret
            left join lost_deletions d on d.topic = w.topic
        where {_FEWER_PARTITIONS}

        -- The missing partitions that all looks up to the last one show (`select_lasting`: two looks are enough).
        create table lost_for_good as
        {select_lasting("lost_at_rest", "topic, op, value, partitions", "obedience_deadline", duration="0")}
        """),
    violations=f"""
        select topic as key, name, asked_op, value, seen, look_op, since, until from (
            select p.topic, p.name, c.op as asked_op, c.value, p.state as seen, p.op as look_op, p.since,
                p.ret as until, {row_number(by="p.topic, p.name", order="p.call, p.op, c.op")} as rank
            from (
                select *, {previous("guilty", by="topic, name", order="call, op")} as former,
                    {previous("call", by="topic, name", order="call, op")} as since
                from lost_settings_judged) p
                join lost_settings c on c.topic = p.topic and c.name = p.name and c.call = p.changed
            where p.guilty = 1 and p.former = 1) as settings
        where rank = 1
        union all
        select topic, '', asked, value, cast(partitions as string), op, since, ret from (
            select p.topic, p.asked, w.value, p.partitions, p.op, p.since, p.ret,
                {row_number(by="p.topic", order="p.call, p.op, w.value")} as rank
            from (
                select *, {previous("asked", by="topic", order="call, op")} as former,
                    {previous("call", by="topic", order="call, op")} as since
                from lost_topics_judged) p
                join lost_partition_counts w on w.topic = p.topic and w.op = p.asked
            where p.former is not null) as seen
        where rank = 1
        union all
        select topic, '', op, value, cast(partitions as string), cast(null as bigint), since, until from (
            select topic, op, value, partitions, since, until,
                {row_number(by="topic", order="value, op")} as rank from lost_for_good) as resting
        where rank = 1
        """,
    evidence=select_first("found_done_but_lost", "key, name, look_op, asked_op"),
    examined="""
        select (select count(*) from lost_setting_looks) + (select count(*) from lost_topics_judged)
            + (select count(*) from lost_partition_counts cross join rest_looks) as examined
        """,
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="[name=?The topic {key} was to have {value} partitions|The setting {name} of {key} had been set [to "
    "{value}|back to its default]|The topic {key} was to have {value} partitions] ({asked_op}, acknowledged at "
    "{asked_op:returned}), but [name=?[seen=0?there was none|it had {seen}]|name?it was [seen=default?at its "
    "default|{seen}]|[seen=0?there was none|it had {seen}]] by [{look_op} and the look before it|all looks] from "
    "{since:time} to {until:time}, and no one had asked for that since.",
    time="until",
    needs_close=True,  # proves nothing about a run that was cut short
    optional=True,  # a workload may change nothing, or never read the changes
)

LOST_CHANGES: Final = Family(
    name=DONE_BUT_LOST.anomaly,
    checks=(DONE_BUT_LOST,),
    applies="""
        select count(*) as examined from effects
        where kind in ('setting', 'topic-create', 'partitions-add') and outcome = 'ok'
        """,
    views=REST_VIEWS,
    kinds=("setting", "topic-create", "partitions-add"),
)
"""Must come after the family ``rest``. It defines the views of this family again, because ``rest`` does not apply to a
history without snapshots."""
