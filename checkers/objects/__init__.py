"""Checks of objects with a simple sequential meaning: ``counters``, ``max_registers``, ``sets``, ``queues``,
``banks``, ``ids`` and ``monotonic``.

Each module is one family: how a workload records itself, the views, the checks. ``emptiness`` judges the queues of a
contract that says that they are linearizable, ``snapshots`` its sets. ``monotonic_cycles`` finds circles of reads.
``kinds`` counts the kinds of effects of a history, by which families know whether they apply. Imports what all checks
share; ``checkers.families``, ``judge``, ``source`` and ``refusals``, and the workloads' contract, import it.
"""
