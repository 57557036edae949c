"""Rejected changes: commits of groups and an administrator's changes that were certainly rejected must not take effect.

A workload records ``commit`` and ``fetched`` as in ``groups.family``. It records ``topic-create``, ``partitions-add``,
``setting`` and ``move`` for changes, and ``topic-seen``, ``setting-seen`` and ``replicas-seen`` for the results of
clients' reads.

A rejected change has taken effect if a read that returned after its call shows it. This is an anomaly if nothing else
explains the read:

- Every other change to this value that was called before the read returned has the outcome fail.
- The value was certainly not there from the beginning. For a commit this holds, because its number is unique. For other
  changes, a read must have shown another value. It must have returned before the first call of a change that did not
  fail. For a setting, this read must show all of the topic's own settings: it has a row ``setting-seen`` without a
  ``name``.

Reads may return old data. So a read that does not show a change does not prove that the change is absent, nor that a
topic is gone. These changes are not judged:

- rejected deletions,
- creations rejected because the topic exists, and creations of a later incarnation (its key is ``topic#2``), because
  reads may show the previous incarnation,
- rejected moves after the first move that may have happened, by a client or a fault, because a moving partition has the
  replicas of both assignments.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, Family, parse_views
from assay.checkers.engine.base import quote_texts
from assay.checkers.sql_idioms import EARLIEST_BEGIN, MAY_HAVE_BEGUN, first_rows_subquery, order_by, total_of

_SAME_CHANGE: Final = " and ".join(f"a.{name} = b.{name}" for name in ("what", "key", "name", "value", "replicas"))


def _select_rows(kinds: str) -> str:
    """Returns SQL: rows of these kinds that have a value, with all columns that identify the change.

    ``what`` says what changes: ``commit``, ``setting``, ``replicas`` or ``partitions`` (the topic's number of them).
    """
    return f"""
        select e.op, e.kind, e.key, coalesce(e.name, '') as name, coalesce(e.value, -1) as value,
            coalesce(e.replicas, '') as replicas, e.outcome, e.error, e.call, e.ret,
            case when e.kind in ('commit', 'fetched') then 'commit' when e.kind in ('setting', 'setting-seen')
                then 'setting' when e.kind in ('move', 'replicas-seen') then 'replicas' else 'partitions' end as what
        from effects e
        where e.kind in ({kinds}) and (e.value is not null or e.replicas is not null)
        """


REFUSED_BUT_DONE: Final = Check(
    anomaly="refused-but-done",
    meaning="a change that was certainly rejected has taken effect",
    views=parse_views(f"""
        -- Calls of changes, with any outcome.
        create table change_requests as
        {_select_rows(quote_texts(("commit", "setting", "move", "topic-create", "partitions-add")))}

        -- Reads that returned: one row for each value that a read shows, with the columns of `change_requests`.
        create table change_reads as
        select * from ({_select_rows(quote_texts(("fetched", "setting-seen", "replicas-seen", "topic-seen")))}) as reads
        where outcome = 'ok' and ret is not null

        -- The first call of a change of each object that may have taken effect.
        create table change_first_calls as
        select what, key, name, min(call) as call from change_requests where outcome <> 'fail'
        group by what, key, name

        -- Rejected changes that a later read shows, and the return of the first such read. A key `topic#2` names a
        -- later incarnation.
        create table rejected_but_seen as
        select a.what, a.key, a.name, a.value, a.replicas,
            a.op as asked_op, a.kind, a.call as asked, min(b.ret) as seen
        from change_requests a join change_reads b on {_SAME_CHANGE} and b.ret > a.call
        where a.outcome = 'fail'
            and (a.kind <> 'topic-create' or (coalesce(a.error, '') not like '%exist%' and a.key not like '%#%'))
        group by a.what, a.key, a.name, a.value, a.replicas, a.op, a.kind, a.call

        -- Rejected changes that a read shows and no other change explains. `f`: the earliest begin of a fault that may
        -- have moved replicas. `touched`: the first call of a change of the object that may have taken effect.
        create table rejected_unexplained as
        select a.what, a.key, a.name, a.value, a.replicas, a.asked_op, a.kind, a.asked, a.seen, t.call as touched
        from rejected_but_seen a
            left join (
                select what, key, name, value, replicas, min(call) as call from change_requests
                where outcome <> 'fail' group by what, key, name, value, replicas) b on {_SAME_CHANGE}
            left join change_first_calls t on a.what = t.what and a.key = t.key and a.name = t.name
            cross join (
                select min(since) as since from (
                    select {EARLIEST_BEGIN} as since from faults where coalesce(moves_replicas, true) group by id
                    having {MAY_HAVE_BEGUN}) as begun) f
        where (b.call is null or b.call > a.seen)
            and (a.kind not in ('move', 'topic-create') or t.call is null or t.call > a.seen)
            and (a.kind <> 'move' or f.since is null or f.since > a.seen)

        -- Unexplained changes whose value was certainly not there before.
        create view rejected_absent_before as
        select a.asked_op, a.key, a.name, a.value
        from rejected_unexplained a where a.what = 'commit'
        union
        select a.asked_op, a.key, a.name, a.value
        from rejected_unexplained a
            join (select e.key, e.op, min(e.ret) as ret from effects e
                where e.kind = 'setting-seen' and e.name is null and e.outcome = 'ok' and e.ret is not null
                group by e.key, e.op) l
            on a.key = l.key
            left join change_reads b on {_SAME_CHANGE} and b.op = l.op
        where a.what = 'setting' and b.op is null and (a.touched is null or l.ret < a.touched)
        union
        select a.asked_op, a.key, a.name, a.value
        from rejected_unexplained a join change_reads b on a.what = b.what and a.key = b.key
        where a.what in ('partitions', 'replicas') and a.kind <> 'topic-create'
            and (a.value <> b.value or a.replicas <> b.replicas) and (a.touched is null or b.ret < a.touched)
        union
        select a.asked_op, a.key, a.name, a.value
        from rejected_unexplained a join effects e on a.key = e.key
        where a.kind = 'topic-create' and e.kind = 'topic-seen' and e.outcome = 'ok' and e.value is null
            and e.ret < a.asked
        """),
    violations="""
        select a.what, a.key, a.name, a.value, a.replicas, a.asked_op, a.asked, a.seen
        from rejected_unexplained a join rejected_absent_before b on a.asked_op = b.asked_op and a.key = b.key
            and a.name = b.name and a.value = b.value
        """,
    evidence=f"""
        select a.what, a.key, a.name, a.value, a.replicas, a.asked_op, a.seen, min(b.op) as read_op
        from {first_rows_subquery("found_refused_but_done", "key, name, value, asked_op")} a
            join change_reads b on {_SAME_CHANGE} and a.seen = b.ret
        group by a.what, a.key, a.name, a.value, a.replicas, a.asked_op, a.seen
        {order_by("a.key, a.name, a.value, a.asked_op")}
        """,
    examined="select count(*) as examined from change_reads",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{asked_op} asked [what=commit?for the commit with the number {value} to {key}|what=setting?to set {name} "
    "of {key} to {value}|what=replicas?to move {key} to the replicas {replicas}|that {key} has {value} partitions], "
    "called at {asked_op:called}, and it was certainly rejected, but {read_op} found it done by {read_op:returned}.",
    about=("[what=commit?value {value} of {key}]",),  # subjects of a finding
    needs_close=True,  # proves nothing about a run that was cut short
)

REJECTED_CHANGES: Final = Family(
    name=REFUSED_BUT_DONE.anomaly,
    checks=(REFUSED_BUT_DONE,),
    applies=f"""
        select {total_of("many")} as examined from effect_kinds
        where kind in ('fetched', 'setting-seen', 'replicas-seen', 'topic-seen')
        """,
)
