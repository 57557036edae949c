"""Checks of groups and leases: who owns what, and who is fenced.

``family`` says how a workload records itself, and lists most families. ``generations`` (an old one commits nothing),
``holds`` (two owners at once), ``orphans`` (no owner for too long; reads the tables of ``holds``), ``fencing`` (tokens
of leases), ``offsets`` (none goes back), ``starts`` (a new owner begins where the group was), ``ownership`` (leaders
and controllers, from the nodes' event logs).
"""
