"""Liveness checks: once every fault is healed, the system reaches its goal states, and clients make progress.

- ``snapshots``: views of the snapshots (looks) of the system, and the duration of a state over several snapshots.
- ``family``: the family of checks that read snapshots.
- ``convergence``: states that brokers and replicas must reach by a deadline.
- ``reassignment``: moves of replicas end. ``partition_state_churn``: leader epochs stop rising.
- ``deletion``: deleted topics disappear. ``retention``: expired segments are deleted.
- ``client_progress``: long-lived clients are served.

Deadlines during the workload are checked in ``groups`` and ``judging.coverage``. The package imports the modules that
all checks share; ``checkers.groups``, ``checkers.administration`` and ``checkers.families`` import it.
"""
