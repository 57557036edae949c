"""Leadership: one leader per epoch, one controller per epoch, and no node that goes back to an older controller.

These checks read the nodes' event logs. They never compare times of events of different nodes: the order of a log is
(node, incarnation, seq), and the order of writes to ZooKeeper is the zxid. They read:

- ``first-append-in-epoch`` (``key``, ``epoch``): the node accepted an append as the leader of that epoch. In a key such
  as ``orders#0-0``, the 0 after ``#`` means that the topic's incarnation is unknown. Such a key may stand for several
  topics, each with an epoch 0. So these keys are left out.
- ``became-controller`` (``controller_epoch``): the node became controller; each incarnation of a node counts
  separately.
- ``request-obeyed`` (``controller_epoch``): the node carried out a request of a controller of that epoch.
- any other event with ``zxid`` and ``controller_epoch``: a write to ZooKeeper by a controller of that epoch.

Each check is a family of its own, so that a history without one kind of event is not reported as lacking data for it.
:class:`assay.checkers.check.Check` explains the fields of a check, such as ``moments`` (further times).
"""

from typing import Final

from assay.checkers.check import Check, family_of, parse_views
from assay.checkers.sql_idioms import first_rows_subquery, greatest_before, order_by, select_first

TWO_LEADERS: Final = Check(
    anomaly="two-leaders",
    meaning="two nodes accepted writes in one leader epoch",
    views=parse_views("""
        create table leaders_by_epoch as
        select key, epoch, node, min(position) as position, min(time) as time from events
        where event = 'first-append-in-epoch' and key is not null and key not like '%#0-%' and epoch is not null
        group by key, epoch, node
        """),
    violations="""
        select key, epoch, min(node) as one_node, max(node) as other_node, count(*) as holders, min(time) as since,
            max(time) as moment
        from leaders_by_epoch group by key, epoch having count(*) > 1
        """,
    evidence=f"""
        select f.key, f.epoch, f.one_node, f.other_node, f.holders, f.since, f.moment, a.position as one_position,
            b.position as other_position
        from {first_rows_subquery("found_two_leaders", "key, epoch")} f
            join leaders_by_epoch a on f.key = a.key and f.epoch = a.epoch and f.one_node = a.node
            join leaders_by_epoch b on f.key = b.key and f.epoch = b.epoch and f.other_node = b.node
        {order_by("f.key, f.epoch")}
        """,
    examined="select count(*) as examined from leaders_by_epoch",
    # `[condition?text|other text]` is a choice: see `checkers.claims`.
    claim="{one_node} and {other_node} both accepted appends to {key} as its leader in epoch {epoch} ({one_node} from "
    "offset {one_position} on, {other_node} from offset {other_position} on)[holders>2?, {holders} in all].",
    more="{holders-2}",  # how many further nodes are not listed
    time="moment",
    moments=("since",),  # further times of cause and effect
)


TWO_CONTROLLERS: Final = Check(
    anomaly="two-controllers",
    meaning="two nodes held one controller epoch",
    views=parse_views("""
        create table controllers_by_epoch as
        select controller_epoch as epoch, node, incarnation, min(time) as time from events
        where event = 'became-controller' and controller_epoch is not null
        group by controller_epoch, node, incarnation
        """),
    violations="""
        select cast(null as string) as key, epoch, min(node) as one_node, max(node) as other_node,
            count(*) as holders, min(time) as since, max(time) as moment
        from controllers_by_epoch group by epoch having count(*) > 1
        """,
    evidence=select_first("found_two_controllers", "epoch"),
    examined="select count(*) as examined from controllers_by_epoch",
    claim="[one_node={other_node}?{one_node} became the controller of epoch {epoch} in two of its lives|{one_node} and "
    "{other_node} both became the controller of epoch {epoch}][holders>2?, {holders} in all].",
    more="{holders-2}",  # how many further nodes are not listed
    time="moment",
    moments=("since",),  # further times of cause and effect
)


STALE_EPOCH_OBEYED: Final = Check(
    anomaly="stale-epoch-obeyed",
    meaning="a node obeyed an epoch after it had obeyed a higher one",
    views=parse_views("""
        -- Commands of controllers. The `place` of an obeyed request is its number in its node's log, and that of a
        -- write to ZooKeeper its zxid.
        create table controller_commands as
        select node, incarnation, seq as place, controller_epoch as low_epoch, controller_epoch as high_epoch, time
        from events where event = 'request-obeyed' and controller_epoch is not null
        union all
        select cast(null as string), cast(null as bigint), zxid, min(controller_epoch), max(controller_epoch),
            min(time)
        from events
        where event <> 'request-obeyed' and zxid is not null and controller_epoch is not null group by zxid
        """),
    violations=f"""
        select cast(null as string) as key, node, incarnation, place, low_epoch as epoch, former, time as moment
        from (
            select node, incarnation, place, low_epoch, time,
                {greatest_before("high_epoch", by="node, incarnation", order="place")} as former
            from controller_commands) as ordered
        where former > low_epoch
        """,
    evidence=select_first("found_stale_epoch_obeyed", "node, incarnation, place"),
    examined="select count(*) as examined from controller_commands",
    claim="[{node} obeyed a controller of epoch {epoch} (event {place} of its life {incarnation}) after it had obeyed "
    "one of epoch {former} in the same life|The write with zxid {place} to ZooKeeper was made under controller epoch "
    "{epoch}, after one with a smaller zxid under epoch {former}].",
    time="moment",
)


OWNERSHIP: Final = (
    family_of(
        TWO_LEADERS, applies="events where event = 'first-append-in-epoch' and key is not null and epoch is not null"
    ),
    family_of(TWO_CONTROLLERS, applies="events where event = 'became-controller' and controller_epoch is not null"),
    family_of(
        STALE_EPOCH_OBEYED,
        applies="events where controller_epoch is not null and (event = 'request-obeyed' or zxid is not null)",
    ),
)

OWNERSHIP_ANOMALIES: Final = tuple(name for family in OWNERSHIP for name in family.anomalies)
