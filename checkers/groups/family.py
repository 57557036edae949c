"""The families of group checks: ownership of partitions, and generations and tokens that fence older ones.

A workload records itself in ``effects`` as follows. ``group`` is the group's name. ``generation`` is its present
generation (null in a design without generations). ``owner`` is the member's or consumer's id:

- ``acquire``: a member was given the partition ``key``, with one row per partition. If it was given no partition,
  ``key`` is the group's name. ``assignment`` is a number unique for each process, key and hold.
- ``release``: the member gave the partition up by itself. ``lost``: it learned, or noticed, that it no longer owns the
  partition. Columns are as in the hold's ``acquire``, with the ``position`` at which the hold ended, if known. Every
  operation reports the changes of its process since its previous operation.
- ``idle``: an operation had no such change to report; ``key`` is the group's name. Without any of these rows, a member
  may own something that it has not reported yet. Then no partition can be called an orphan.
- polls as in ``log.family``, with the hold's ``assignment``, and ``group``.
- ``commit``: ``key`` names group and partition, ``value`` is the commit's unique number, ``position`` the offset.
  Without ``generation`` the client is no member. ``assignment``: the number of the hold under which the member read
  the records that it commits.
- ``fetched``: ``value`` and ``position`` of the commit that was found.
- ``claim``, ``share``: see ``split_views``.
- A lease has no group: ``acquire``, ``renew``, ``release`` and ``lost`` as above, with its ``token``. ``guarded``
  records actions under the lease (see ``fencing``).

Each check is a family of its own, so that a history is not reported as lacking data that its workload never records.
"""

from typing import Final

from assay.checkers.administration.rejected_changes import REJECTED_CHANGES
from assay.checkers.check import PreparedTables, family_of
from assay.checkers.groups.commits import COMMIT_MISMATCHES, COMMITS, COMMITS_BEYOND_LOG
from assay.checkers.groups.fencing import FENCING_VIOLATION
from assay.checkers.groups.generations import GENERATION_REUSE, ZOMBIE_COMMIT
from assay.checkers.groups.group_convergence import UNSETTLED_GROUP
from assay.checkers.groups.orphans import ORPHANED_PARTITION
from assay.checkers.groups.ownership_intervals import DOUBLE_OWNERSHIP, HOLD_VIEWS
from assay.checkers.groups.read_after_release import READS_AFTER_RELEASE
from assay.checkers.groups.rebalance_churn import REBALANCE_CHURN
from assay.checkers.groups.split_views import SPLIT_VIEWS
from assay.checkers.groups.starts import STARTS

GENERATIONS: Final = (
    family_of(
        ZOMBIE_COMMIT,
        applies="effects e where e.kind in ('acquire', 'commit') and e.group is not null and e.generation >= 0",
        kinds=("acquire", "commit"),
    ),
    family_of(
        DOUBLE_OWNERSHIP,
        applies="effects e where e.kind = 'acquire' and e.owner is not null and (e.generation is not null "
        "or e.token is not null or e.assignment is not null)",
        prepare=PreparedTables(HOLD_VIEWS),
        kinds=("acquire",),
    ),
    family_of(GENERATION_REUSE, applies="events where event = 'group-generation'"),
)
ORPHANS: Final = family_of(
    ORPHANED_PARTITION,
    applies="effects e where e.kind = 'acquire' and e.owner is not null and e.assignment is not null "
    "and e.key <> e.group",
    kinds=("acquire",),
)
"""Must come after the family of ``DOUBLE_OWNERSHIP``, whose tables it reads."""
FENCING: Final = family_of(
    FENCING_VIOLATION, applies="effects where kind = 'guarded' and token is not null", kinds=("guarded",)
)
GROUP_CONVERGENCE: Final = family_of(
    UNSETTLED_GROUP, applies="effects e where e.phase = 'drain' and e.group is not null"
)

GROUPS: Final = (
    *GENERATIONS,
    ORPHANS,
    FENCING,
    *COMMITS,
    STARTS,
    READS_AFTER_RELEASE,
    SPLIT_VIEWS,
    GROUP_CONVERGENCE,
    REBALANCE_CHURN,
)

GROUP_ANOMALIES: Final = tuple(
    name for family in (*GENERATIONS, COMMIT_MISMATCHES, REJECTED_CHANGES) for name in family.anomalies
)
"""All anomalies of a group that has generations."""

CONSUMER_ANOMALIES: Final = (
    DOUBLE_OWNERSHIP.anomaly,
    ORPHANED_PARTITION.anomaly,
    *COMMITS_BEYOND_LOG.anomalies,
    *STARTS.anomalies,
)
"""All anomalies of a group whose members' holds are recorded, with or without generations."""
