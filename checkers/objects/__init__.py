"""Checks of objects with a simple sequential meaning. Each of these modules is a family: how a workload records itself,
the views, the checks.

- ``counters``, ``max_registers``, ``sets``, ``queues``, ``banks``, ``ids``, ``monotonic``: the families.
- ``emptiness``: queues that the contract declares linearizable.
- ``snapshots``: sets that the contract declares linearizable.
- ``monotonic_cycles``: finds cycles of reads.
- ``kinds``: counts the kinds of effects of a history, by which families know whether they apply.

The package imports what all checks share. ``checkers.families``, ``checkers.judging``, ``checkers.partitioned_by_key``,
``administration.rejected_changes`` and the workloads' contract import it.
"""
