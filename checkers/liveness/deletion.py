"""Topic deletion: a deleted topic is gone from ZooKeeper, disks and metadata by the contract's deletion deadline.

The check finds five violations:

1. The request is still in ZooKeeper, although every replica's broker is registered and no move of the topic is under
   way.
2. A disk has files of a partition whose topic no longer exists.
3. A broker still knows the topic.
4. A client's deletion was acknowledged and the topic exists, although no client can have created it again. Two
   successive snapshots (looks, see ``snapshots``) are enough for this.
5. The topic's settings are still in ZooKeeper, where the next topic of this name would find them.

The zxid of the creation distinguishes topics of one name. The system must not create topics automatically.

``snapshots`` explains the kinds of rows of a look (``what``), and creates ``rest_brokers``: the registered brokers in
each look.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.liveness.snapshots import BROKER, TOPIC_ON_NODE, make_snapshot_check, select_lasting
from assay.checkers.sql_idioms import (
    count_in_list,
    extract_topic,
    first_rows_subquery,
    list_contains,
    order_by,
    strip_incarnation,
)

UNDELETED_TOPIC: Final = make_snapshot_check(
    anomaly="undeleted-topic",
    meaning="a deleted topic still existed on a broker or in ZooKeeper at the deadline",
    views=parse_views(f"""
        -- Topics whose deletion rightly waits for a broker or for a move.
        create view deletion_waiting as
        select p.look, {extract_topic("p.key")} as topic from (
            select p.look, p.key, p.replicas, count(case when {
        list_contains("p.replicas", "b.broker")
    } then 1 end) as living
            from looks p join rest_brokers b on b.look = p.look
            where p.what = 'partition' group by p.look, p.key, p.replicas) p
        where living < {count_in_list("p.replicas")}
        union
        select look, {extract_topic("key")} from looks where what = 'move'

        -- Deletions that are requested and have no reason to wait.
        create view deletion_requests as
        select d.look, d.key, coalesce(t.zxid, -1) as zxid from looks d
            left join looks t on t.look = d.look and t.what = 'topic' and t.key = d.key
            left join deletion_waiting w on w.look = d.look and w.topic = d.key
        where d.what = 'deletion' and w.topic is null

        -- Files of topics that no longer exist.
        create view deletion_files as
        select f.look, f.key, f.node, f.zxid from looks f
            join rest_brokers b on b.look = f.look and b.node = f.node
            left join looks t on t.look = f.look and t.what = 'topic' and t.key = {extract_topic("f.key")}
                and t.zxid = f.zxid
        where f.what = 'folder' and t.key is null

        -- Topics that a broker knows and that do not exist.
        create view deletion_known_topics as
        select k.look, k.key, k.node from looks k
            left join looks t on t.look = k.look and t.what = 'topic' and t.key = k.key
        where k.what = 'known' and t.key is null

        -- Settings of topics that do not exist.
        create view deletion_settings as
        select s.look, s.key from looks s
            left join looks t on t.look = s.look and t.what = 'topic' and t.key = s.key
        where s.what = 'settings' and t.key is null

        -- Acknowledged deletions after which no client can have created the topic again.
        create table deletion_acknowledged as
        select d.topic, d.op from (
            select {strip_incarnation("key")} as topic, min(op) as op, min(call) as call from effects
            where kind = 'topic-delete' and outcome = 'ok' and ret is not null group by {
        strip_incarnation("key")
    }, op) d
            left join (
                select {strip_incarnation("key")} as topic,
                    max(case when outcome = 'ok' then coalesce(ret, {INFINITY}) else {INFINITY} end) as made
                from effects where kind = 'topic-create' and outcome <> 'fail' group by {strip_incarnation("key")}) c
                on c.topic = d.topic
        where coalesce(c.made, 0) < d.call

        -- Topics that exist although their deletion was acknowledged.
        create view deletion_survivors as
        select t.look, t.key, min(p.op) as op from deletion_acknowledged p
            join looks t on t.what = 'topic' and t.key = p.topic
            left join looks d on d.look = t.look and d.what = 'deletion' and d.key = t.key
        where d.key is null group by t.look, t.key

        -- Violation 1: the request. `select_lasting` selects the states that all looks up to the last one show for
        -- longer than the deadline.
        create table deletion_unended as
        {select_lasting("deletion_requests", "key, zxid", "deletion_deadline")}

        -- Violation 2: files on a disk.
        create table deletion_uncleaned as
        {select_lasting("deletion_files", "key, node, zxid", "deletion_deadline")}

        -- Violation 3: a broker knows the topic.
        create table deletion_remembered as
        {select_lasting("deletion_known_topics", "key, node", "deletion_deadline")}

        -- Violation 5: the topic's settings.
        create table deletion_outlived as
        {select_lasting("deletion_settings", "key", "deletion_deadline")}

        -- Violation 4: the topic exists after its deletion was acknowledged.
        create table deletion_undone as
        {select_lasting("deletion_survivors", "key, op", "deletion_deadline", duration="0")}
        """),
    violations="""
        select key, 1 as violation, cast(null as string) as node, cast(null as bigint) as delete_op, since, until,
            deadline
        from deletion_unended
        union all select key, 2, node, cast(null as bigint), since, until, deadline from deletion_uncleaned
        union all select key, 3, node, cast(null as bigint), since, until, deadline from deletion_remembered
        union all select key, 4, cast(null as string), op, since, until, deadline from deletion_undone
        union all select key, 5, cast(null as string), cast(null as bigint), since, until, deadline
        from deletion_outlived
        """,
    evidence=f"""
        select *, case when violation = 2 then {extract_topic("key")} else key end as topic
        from {first_rows_subquery("found_undeleted_topic", "key, violation, node")} f {order_by("key, violation, node")}
        """,
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="[violation=4?The deletion of {key} by {delete_op} was acknowledged at {delete_op:returned}, no one made it "
    "again, and it was there from {since:time} to {until:time}.|[violation=1?{key:capital} was to be deleted from "
    "{since:time} to {until:time}, every broker with a replica of it was there, and it was "
    "not|violation=2?{node:capital} had files of {key} from {since:time} to {until:time} that were made for a topic "
    "which is no more|violation=3?{node:capital} still knew {key} from {since:time} to {until:time}, although there "
    "is no such topic|The settings of {key} were in ZooKeeper from {since:time} to {until:time}, although there is no "
    "such topic]; the contract's deadline is {deadline:time}.]",
    operations=("delete_op",),
    about=(TOPIC_ON_NODE, BROKER),  # subjects of a finding
    explained_by=("unregistered",),
    seen_again=True,  # one cause may be reported several times
)
