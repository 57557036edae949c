"""Liveness of long-lived clients: a client that retries succeeds if other clients succeed.

A workload records ``tried`` in ``effects``, in addition to the rows of the request itself. ``key`` names the request's
object. ``client`` says which of its worker's clients sent the request (a long-lived or a new one). ``outcome`` says
whether the request was done. Only requests that always succeed without faults are recorded. Requests that may rightly
be rejected, and requests that any answer satisfies (a ``large-request``), are not recorded.

A client (of its worker, at a key) is *stuck* while none of its tries succeeds. The time begins at the first success of
another client at the key. The other client must have called its try after the latest of

- the client's first failure,
- the end of the last fault,
- the begin of a fault that only ended processes, if it is not yet healed.

So an absent server is no excuse for a client to keep asking it. The client is stuck for too long if

1. the contract's ``progress_deadline`` has passed when the client calls a try that fails,
2. other clients still succeeded in the last half of ``progress_deadline`` before this call, and
3. at least ``MIN_TRIES`` tries of the client were called in this time.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import LONG_STANDSTILL, Check, family_of, parse_views
from assay.checkers.engine import INFINITY
from assay.checkers.sql_idioms import EARLIEST_BEGIN, MAY_HAVE_BEGUN, TARGETS_ZOOKEEPER, select_first, sum_so_far

MIN_TRIES: Final = 3
"""Minimum number of failed tries of a stuck client."""
_CLIENT: Final = "worker, client, key"
"""The columns that identify a client at a key."""


STUCK_CLIENT: Final = Check(
    anomaly="stuck-client",
    meaning="a client kept failing while other clients succeeded",
    views=parse_views(f"""
        -- The tries of each client; `done`: the return of a try that succeeded.
        create table progress_tries as
        select o.worker, e.client, e.key, e.op, e.call, case when e.outcome = 'ok' then e.ret end as done
        from effects e join ops o on o."index" = e.op where e.kind = 'tried'

        -- Streaks of failed tries: the first and the last call.
        create table progress_streaks as
        select {_CLIENT}, streak, min(call) as first_call, max(call) as last_call, max(op) as last_op from (
            select {_CLIENT}, op, call, done,
                {sum_so_far("case when done is null then 0 else 1 end", by=_CLIENT, order="call, op")} as streak
            from progress_tries) as numbered
        where done is null group by {_CLIENT}, streak having count(*) >= {MIN_TRIES}

        -- `gone`: when a fault that only ends servers had ended them. It is infinite for all other faults, such as
        -- those of client nodes, those of ZooKeeper (without which servers learn nothing of each other), and those that
        -- end servers one after the other (`gradual`).
        create view progress_faults as
        select {EARLIEST_BEGIN} as since,
            case when max(case when ends_process and not coalesce(gradual, false) then 1 else 0 end) = 1
                    and max(case when on_clients or {TARGETS_ZOOKEEPER} then 1 else 0 end) = 0
                then coalesce(max(case when phase = 'injected' then time end), {INFINITY}) else {INFINITY} end as gone,
            coalesce(min(case when phase = 'healed' then time end), {INFINITY}) as healed,
            coalesce(max(case when phase = 'recovered' then time end), {INFINITY}) as until
        from faults group by id having {MAY_HAVE_BEGUN}

        -- `since`: the time from which faults no longer excuse the client's failures.
        create table progress_waits as
        select s.worker, s.client, s.key, s.streak, s.last_call, s.last_op, greatest(s.first_call,
            coalesce(max(case when f.healed > s.last_call then f.gone else f.until end), 0)) as since
        from progress_streaks s left join progress_faults f on f.since <= s.last_call
        group by s.worker, s.client, s.key, s.streak, s.first_call, s.last_call, s.last_op

        -- Clients that kept failing, and the successes of others in that time: the first return (`served`), the last
        -- call, and their number.
        create table progress_served as
        select w.worker, w.client, w.key, w.streak, w.last_call, w.last_op, min(t.done) as served,
            max(t.call) as last_served, count(*) as others
        from progress_waits w join progress_tries t on t.key = w.key
            and (t.worker <> w.worker or t.client <> w.client) and t.call >= w.since and t.done is not null
            and t.call <= w.last_call
        group by w.worker, w.client, w.key, w.streak, w.last_call, w.last_op
        """),
    violations=f"""
        select s.worker, s.client, s.key, s.served, s.last_call, s.last_op, s.others,
            d.progress_deadline as deadline, count(*) as tries, min(o.op) as served_op
        from progress_served s cross join log_declared d
            join progress_tries t on t.worker = s.worker and t.client = s.client and t.key = s.key
                and t.call >= s.served and t.call <= s.last_call
            join (select key, done, min(op) as op from progress_tries where done is not null group by key, done) o
                on o.key = s.key and o.done = s.served
        where s.last_call - s.served >= d.progress_deadline
            and s.last_served >= s.last_call - (d.progress_deadline >> 1)
        group by s.worker, s.client, s.key, s.served, s.last_call, s.last_op, s.others, d.progress_deadline
        having count(*) >= {MIN_TRIES}
        """,
    evidence=select_first("found_stuck_client", "key, worker, client, last_call"),
    examined="select count(*) as examined from progress_tries",
    claim="All {tries} tries of a {client} client of {worker} at {key} failed from {served:time} to {last_call:time}, "
    "the last by {last_op}, though {others} tries of others succeeded in that time, the first by {served_op}; the "
    "contract's deadline is {deadline:time}.",
    time="last_call",
    standstill=LONG_STANDSTILL,  # of the tester itself, in seconds: findings then prove nothing
)

PROGRESS: Final = family_of(STUCK_CLIENT, applies="effects where kind = 'tried'", kinds=("tried",))
