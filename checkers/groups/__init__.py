"""Checks of groups and leases: who owns what, and who is fenced.

``family`` says how a workload records itself, and lists most families. ``generations`` (an old one commits nothing),
``ownership_intervals`` (two owners at once), ``orphans`` (no owner for too long; reads the tables of
``ownership_intervals``), ``fencing`` (tokens of leases), ``offsets`` (none goes back), ``starts`` (a new owner begins
where the group was), ``commits`` (no position but those committed), ``expiry`` (offsets kept for a time),
``read_after_release`` (nothing comes after a hold has ended),
``views`` (claims by one view of the group), ``group_convergence`` and ``rebalance_churn`` (what it comes to after the
last heal),
``ownership`` (leaders and controllers, from the nodes' event logs).

Imports what all checks share, ``log.incarnations``, ``log.ends`` and ``rest.looks``; ``checkers.families`` and the
workloads import it.
"""
