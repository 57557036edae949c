"""Split brain in groups whose members assign partitions by themselves: claims by an older view of the group.

In Kafka's first design, on ZooKeeper, each member reads who is in the group and computes the shares by itself. Two
members that read at different times may both take a partition. A workload records itself in ``effects``; all rows of
one claim have the same ``version`` and ``value``:

- ``claim``: the member ``owner`` claimed the partition ``key`` for itself. ``version`` is the number (a zxid) of the
  latest change of members that it had seen, ``value`` the number of the claim. Both belong to one sequence, so
  comparing them needs no clock.
- ``share``: another partition, which by the same view belongs to the member ``owner``.

A claim is an anomaly if another member had claimed before it by a later view in which the partition belongs to someone
else. A member that still keeps a partition by an earlier view is no anomaly, because it may not have noticed the
change. Nothing is claimed of views that differ only in their topics.
"""

from typing import Final

from assay.checkers.check import Check, Table, View, family_of
from assay.checkers.sql_idioms import greatest_before, select_first

SPLIT_BRAIN: Final = Check(
    anomaly="split-brain",
    meaning="a member claimed a partition by an older view of its group than another had claimed by before",
    views=(
        View(
            "claim_rows",
            """
            select coalesce(e.group, '') as group_name, e.key, e.kind, e.owner, e.version as seen, e.value as made, e.op
            from effects e
            where e.kind in ('claim', 'share') and e.outcome = 'ok' and e.owner is not null and e.version is not null
                and e.value is not null
            """,
        ),
        Table(
            "claimed_views",
            """
            select group_name, key, seen, owner, min(made) as made, min(op) as op from claim_rows
            group by group_name, key, seen, owner
            """,
        ),
    ),
    violations=f"""
        select c.group_name, c.key, c.owner, c.seen, c.made, c.op as late_op, k.seen as newest, k.owner as other,
            k.made as known_made, k.op as known_op
        from (
            select group_name, key, kind, owner, seen, made, op,
                {greatest_before("seen", by="group_name, key", order="made")} as newest
            from claim_rows) c
            join claimed_views k on c.group_name = k.group_name and c.key = k.key and c.newest = k.seen
        where c.kind = 'claim' and c.newest > c.seen and k.owner <> c.owner and k.made < c.made
        """,
    evidence=select_first("found_split_brain", "group_name, key, made, other"),
    examined="select count(*) as examined from claim_rows where kind = 'claim'",
    claim="{owner} claimed {key} of {group_name} (zxid {made}, reported by {late_op} at {late_op:returned}) by the "
    "members as of zxid {seen}, although {known_op} had claimed before it (zxid {known_made}) by those as of zxid "
    "{newest}, by which it is for {other}.",
    seen_again=True,  # for each partition of a claim
)

SPLIT_VIEWS: Final = family_of(
    SPLIT_BRAIN, applies="effects where kind = 'claim' and version is not null", kinds=("claim",)
)
"""Claims, and the views by which they were made."""
