"""Checks of objects with a simple sequential meaning.

- ``counters``, ``max_registers``, ``sets``, ``queues``, ``banks``, ``ids``, ``monotonic``: one family each. A module
  says how a workload records itself, and has the views and the checks.
- ``kinds``: counts the kinds of effects of a history. These counts tell which families apply.

The package imports the modules that all checks share. ``checkers.families``, ``checkers.judging``,
``checkers.partitioned_by_key``, ``administration.rejected_changes`` and the workloads' contract import it.
"""
