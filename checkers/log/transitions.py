"""State machines of the controller: partitions and replicas change state only by valid transitions.

The check reads ``partition-transition`` and ``replica-transition`` (``from_state``, ``to_state``, ``controller_epoch``;
for a replica also the number of its node, ``replica``). They are ordered by the event log of one node incarnation (one
start of its process). The check also reads ``partition-state-written`` (``value``: the leader, -1 for none).

A step is illegal if

- no valid transition leads from its ``from_state`` to its ``to_state``;
- its ``from_state`` is not the state in which the previous step of this controller epoch had ended;
- it leads from Online to another state than Offline, although the controller has written meanwhile that there is no
  leader.

Steps after missing lines of the node's event log are not judged by the last two rules.

The first step of an object in a controller epoch may lack ``from_state``, because a new controller begins with the
states that it finds. So nothing is compared across controller epochs. The check misses actions that a controller did
not log.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of, parse_views
from assay.checkers.sql_idioms import previous, row_number, select_first, sum_so_far

VALID: Final = {
    "partition-transition": (
        "NonExistent New",
        "New Online", "New Offline",
        "Online Online", "Online Offline",
        "Offline Online", "Offline Offline", "Offline NonExistent",
    ),
    "replica-transition": (
        "NonExistent New",
        "New Online", "New Offline",
        "Online Online", "Online Offline",
        "Offline Online", "Offline Offline", "Offline ReplicaDeletionStarted",
        "ReplicaDeletionStarted ReplicaDeletionSuccessful", "ReplicaDeletionStarted ReplicaDeletionIneligible",
        "ReplicaDeletionIneligible Online", "ReplicaDeletionIneligible Offline",
        "ReplicaDeletionSuccessful NonExistent",
    ),
}  # fmt: skip
"""Valid transitions of Kafka 0.10.2, per event: pairs of states."""

# SQL: the valid transitions, and the known states, each after the name of its event.
_VALID: Final = ", ".join(f"'{event} {pair}'" for event, pairs in VALID.items() for pair in pairs)
_KNOWN: Final = ", ".join(
    sorted({f"'{event} {state}'" for event, pairs in VALID.items() for pair in pairs for state in pair.split()})
)
_INCARNATION: Final = "node, incarnation"
# Columns that identify a partition or a replica in one controller epoch.
_OBJECT: Final = f"{_INCARNATION}, controller_epoch, key, event, replica"


ILLEGAL_TRANSITION: Final = Check(
    anomaly="illegal-transition",
    meaning="the controller made an invalid transition of a partition or a replica",
    views=parse_views(f"""
        -- Incarnations of nodes that have logged a transition.
        create view transition_incarnations as
        select {_INCARNATION} from events where to_state is not null group by {_INCARNATION}

        -- Lines about states. `missing`: how many lines the event log lacks before this one. A key such as `orders#0-0`
        -- is left out, because 0 means that the topic's incarnation is unknown.
        create table transition_lines as
        select {_INCARNATION}, seq, time, controller_epoch, key, event, replica, from_state, to_state, leaderless,
            missing
        from (
            select e.node, e.incarnation, e.seq, e.time, e.controller_epoch, e.key, e.from_state, e.to_state,
                case when e.event = 'partition-state-written' then 'partition-transition' else e.event end as event,
                coalesce(e.replica, -1) as replica,
                case when e.event = 'partition-state-written' and e.value < 0 then 1 else 0 end as leaderless,
                e.seq - {row_number(by="e.node, e.incarnation", order="e.seq")} as missing
            from events e
                join transition_incarnations l on l.node = e.node and l.incarnation = e.incarnation) as numbered
        where key is not null and key not like '%#0-%' and controller_epoch is not null
            and (to_state is not null or leaderless = 1)

        -- Each step with the state in which the step before it ended (`former`). `leaderless` counts how often the
        -- controller has written by then that the partition has no leader.
        create table transition_steps as
        select {_OBJECT}, seq, time, from_state, to_state, missing, leaderless,
            {previous("to_state", by=_OBJECT, order="seq")} as former,
            {previous("missing", by=_OBJECT, order="seq")} as former_missing,
            {previous("leaderless", by=_OBJECT, order="seq")} as former_leaderless
        from (
            select {_OBJECT}, seq, time, from_state, to_state, missing,
                {sum_so_far("leaderless", by=_OBJECT, order="seq")} as leaderless
            from transition_lines) as counted
        where to_state is not null
        """),
    violations=f"""
        select key, replica, controller_epoch, node, seq, from_state, to_state, former, time as moment, why from (
            select *, case
                when from_state is null and concat(event, ' ', to_state) not in ({_KNOWN}) then 'invalid'
                when from_state is not null
                    and concat(event, ' ', from_state, ' ', to_state) not in ({_VALID}) then 'invalid'
                when former is not null and from_state is null then 'discontinuous'
                when missing <> former_missing then null
                when from_state <> former then 'discontinuous'
                when former = 'Online' and to_state <> 'Offline' and leaderless > former_leaderless
                    then 'leaderless' end as why
            from transition_steps) as judged
        where why is not null
        """,
    evidence=select_first("found_illegal_transition", "key, replica, controller_epoch, node, seq"),
    examined="select count(*) as examined from transition_steps",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="In controller epoch {controller_epoch} {node} took [replica<0?{key}|replica {replica} of {key}] from "
    "[from_state=?no state|{from_state}|no state] to {to_state}, [why=discontinuous?though it had last taken it to "
    "{former}|why=leaderless?though it had written in between that no one leads it|which is no valid transition].",
    time="moment",
    optional=True,  # a system need not say how its controller works
)

TRANSITIONS: Final = family_of(ILLEGAL_TRANSITION, applies="events where to_state is not null")
