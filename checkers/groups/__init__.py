"""Checks of groups and leases: who owns what, and who is fenced.

- ``family``: how a workload records itself; lists most families.
- ``generations``: an old generation commits nothing, and no number is given twice.
- ``ownership_intervals``: two owners at once.
- ``orphans``: no owner for too long; reads the tables of ``ownership_intervals``.
- ``fencing``: tokens of leases.
- ``offsets``: committed offsets do not go back.
- ``starts``: a new owner begins at the committed offset.
- ``commits``: only committed positions are fetched, and none lies above what was read.
- ``expiry``: offsets kept for a time.
- ``read_after_release``: no records after a hold has ended.
- ``split_views``: claims by one view of the group.
- ``group_convergence``, ``rebalance_churn``: the group settles after the last heal.
- ``ownership``: leaders and controllers, from the nodes' event logs.

The package imports what all checks share, and ``liveness.snapshots``. ``checkers.families`` and the
workloads import it.
"""
