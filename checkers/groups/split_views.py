"""Split brain in groups whose members assign partitions to themselves: claims by an older view of the group.

In Kafka's first design, on ZooKeeper, each member reads who is in the group and computes the shares by itself. Two
members that read at different times may both take a partition. A workload records itself in ``effects``; all rows of
one claim have the same ``version`` and ``value``:

- ``claim``: the member ``owner`` claimed the partition ``key`` for itself. ``version`` is the number (a zxid) of the
  latest change of members that it had seen, ``value`` the number of the claim. Both belong to one sequence, so
  comparing them needs no clock.
- ``share``: another partition, which by the same view belongs to the member ``owner``.

A claim is an anomaly if an earlier claim was made by a later view (with a higher ``version``), in which the partition
belongs to another member. A member that still keeps a partition by an earlier view is no anomaly, because it may not
have noticed the change. Views that differ only in their topics are not judged.

``checkers.check`` explains the fields of a check, and the tables that a check reads without creating them.
"""

from typing import Final

from assay.checkers.check import Check, family_of, parse_views
from assay.checkers.sql_idioms import greatest_before, select_first

SPLIT_BRAIN: Final = Check(
    anomaly="split-brain",
    meaning="a member claimed a partition by an older view of its group than an earlier claim of another member",
    views=parse_views("""
        -- Claims, and the shares of others by the same view.
        create view claim_rows as
        select coalesce(e.group, '') as group_name, e.key, e.kind, e.owner, e.version as view_version,
            e.value as claim_number, e.op
        from effects e
        where e.kind in ('claim', 'share') and e.outcome = 'ok' and e.owner is not null and e.version is not null
            and e.value is not null

        -- The owner of each partition by each version of the view, and the first claim by that view.
        create table claimed_views as
        select group_name, key, view_version, owner, min(claim_number) as claim_number, min(op) as op from claim_rows
        group by group_name, key, view_version, owner
        """),
    # `newest`: the latest view by which an earlier claim was made. `k`: the owners of partitions by this view.
    violations=f"""
        select c.group_name, c.key, c.owner, c.view_version, c.claim_number, c.op as late_op,
            k.view_version as newest, k.owner as other, k.claim_number as known_number, k.op as known_op
        from (
            select group_name, key, kind, owner, view_version, claim_number, op,
                {greatest_before("view_version", by="group_name, key", order="claim_number")} as newest
            from claim_rows) c
            join claimed_views k on c.group_name = k.group_name and c.key = k.key and c.newest = k.view_version
        where c.kind = 'claim' and c.newest > c.view_version and k.owner <> c.owner and k.claim_number < c.claim_number
        """,
    evidence=select_first("found_split_brain", "group_name, key, claim_number, other"),
    examined="select count(*) as examined from claim_rows where kind = 'claim'",
    claim="{owner} claimed {key} of {group_name} (zxid {claim_number}, reported by {late_op} at {late_op:returned}) by "
    "the members as of zxid {view_version}, although {known_op} had claimed before it (zxid {known_number}) by those "
    "as of zxid {newest}, by which it is for {other}.",
    seen_again=True,  # for each partition of a claim
)

SPLIT_VIEWS: Final = family_of(
    SPLIT_BRAIN, applies="effects where kind = 'claim' and version is not null", kinds=("claim",)
)
"""The family of claims, and of the views by which they were made."""
