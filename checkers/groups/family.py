"""The families of group checks: who owns what, and generations and tokens that fence those of an older one.

How a workload records itself in ``effects``; ``group`` is the group's name, ``generation`` its present one (null in a
design that has none), ``owner`` the member's or consumer's id:

- ``acquire``: a member was given the partition ``key``, one row each; ``key`` is the group's name where it was given
  none. ``assignment``: a number unique for each process, key and hold.
- ``release``: it gave the partition up by itself; ``lost``: it was informed, or noticed by itself, that it owns it no
  more. Columns as in the hold's ``acquire``, and the ``position`` at which the hold ended, where that is known. Every
  operation reports what its process acquired, gave up or lost since the one before.
- ``idle``: an operation had no such change of the group to report; ``key`` is the group's name. Without it, it is not
  known whether a member that owns nothing goes on to own nothing, and then no partition is an orphan for certain.
- polls as in ``log.family``, with the hold's ``assignment``, and ``group``.
- ``commit``: ``key`` names group and partition, ``value`` the commit's unique number, ``position`` the offset; without
  ``generation`` it is that of a client that is no member. ``assignment``: that of the member's reads. ``fetched``:
  ``value`` and ``position`` as committed.
- ``claim``, ``share``: see ``views``.
- a lease has no group: ``acquire``, ``renew``, ``release`` and ``lost`` as above, with its ``token``; and
  ``guarded`` for what was done under it (see ``fencing``).

Each check is a family of its own, so that a history owes no data for what it has nothing of.
"""

from typing import Final

from assay.checkers.administration.rejected_changes import REFUSALS
from assay.checkers.check import Prepared, family_of
from assay.checkers.groups.commits import BEYOND, COMMITS, MISMATCHES
from assay.checkers.groups.fencing import FENCING_VIOLATION
from assay.checkers.groups.generations import GENERATION_REUSE, ZOMBIE_COMMIT
from assay.checkers.groups.group_convergence import UNSETTLED_GROUP
from assay.checkers.groups.orphans import ORPHANED_PARTITION
from assay.checkers.groups.ownership_intervals import DOUBLE_OWNERSHIP, HOLD_VIEWS
from assay.checkers.groups.read_after_release import PARTINGS
from assay.checkers.groups.rebalance_churn import RESTLESSNESS
from assay.checkers.groups.starts import STARTS
from assay.checkers.groups.views import SPLITS

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
        prepare=Prepared(HOLD_VIEWS),
        kinds=("acquire",),
    ),
    family_of(GENERATION_REUSE, applies="events where event = 'group-generation'"),
)
HOLDING: Final = family_of(
    ORPHANED_PARTITION,
    applies="effects e where e.kind = 'acquire' and e.owner is not null and e.assignment is not null "
    "and e.key <> e.group",
    kinds=("acquire",),
)
"""After the one of ``DOUBLE_OWNERSHIP``, whose tables it reads."""
FENCING: Final = family_of(
    FENCING_VIOLATION, applies="effects where kind = 'guarded' and token is not null", kinds=("guarded",)
)
SETTLING: Final = family_of(UNSETTLED_GROUP, applies="effects e where e.phase = 'drain' and e.group is not null")

GROUPS: Final = (*GENERATIONS, HOLDING, FENCING, *COMMITS, STARTS, PARTINGS, SPLITS, SETTLING, RESTLESSNESS)

GROUP_ANOMALIES: Final = tuple(name for family in (*GENERATIONS, MISMATCHES, REFUSALS) for name in family.anomalies)
"""What can go wrong with a group that has generations."""

CONSUMER_ANOMALIES: Final = (DOUBLE_OWNERSHIP.anomaly, ORPHANED_PARTITION.anomaly, *BEYOND.anomalies, *STARTS.anomalies)
"""What can go wrong with a group whose members' holds are recorded, generations or not."""
