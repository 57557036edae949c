"""Liveness checks: what was begun must end once every fault is healed.

``snapshots`` has what they share: how long a state lasted, from one snapshot of the system to the next.

- replicas: ``reassignment``, ``in_sync_return``, ``replica_convergence``, ``stale_metadata``, ``registration``,
  ``partition_state_churn``
- topics: ``settings``, ``deletion``, ``retention``
- logs: ``flushing``, ``high_watermark``
- clients: ``client_progress``

``family`` lists them. Deadlines during the workload are checked elsewhere: ``groups`` and ``judging.coverage``.

Imports what all checks share, and ``log.incarnations``; ``checkers.log``, ``checkers.groups`` and
``checkers.families`` import it.
"""
