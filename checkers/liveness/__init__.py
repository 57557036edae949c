"""Liveness checks: everything that a run began must end once every fault is healed.

- ``snapshots``: shared views; how long a state lasted from one snapshot (look) of the system to the next.
- ``family``: lists the checks of a system at rest.
- ``convergence``: states that brokers and replicas must reach by a deadline.
- ``reassignment``, ``partition_state_churn``: replicas.
- ``deletion``, ``retention``: topics.
- ``client_progress``: clients.

Deadlines during the workload are checked in ``groups`` and ``judging.coverage``. The package imports what all checks
share; ``checkers.groups``, ``checkers.administration`` and ``checkers.families`` import it.
"""
