"""Checks of groups and leases: who owns what, and who is fenced.

- ``family``: most families of group checks, and how a workload records itself.
- ``generations``: no commits of old generations, and no generation number given twice.
- ``ownership_intervals``: intervals of ownership, and two owners at once.
- ``orphans``: no owner for too long; reads the tables of ``ownership_intervals``.
- ``fencing``: tokens of leases.
- ``offsets``: committed offsets do not go back.
- ``starts``: a new owner begins at the committed offset.
- ``commits``: only committed positions are fetched, and none lies above what was read.
- ``expiry``: retention of committed offsets.
- ``read_after_release``: no records after a hold has ended.
- ``split_views``: claims by different views of the group's members.
- ``group_convergence``, ``rebalance_churn``: after the last heal, members read everything and rebalances end.

The package imports the modules that all checks share, and ``liveness.snapshots``. ``checkers.families`` and the
workloads import it.
"""
