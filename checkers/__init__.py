"""Checks of a history: they prove that promises were kept, or name the operations that contradict each other.

These modules make a verdict:

- ``check``: declaration of a check: SQL views over the history's tables, and a template of its findings
- ``claims``: templates that put a violation into words
- ``exposure``: counts what a history asserts (its claims), and how much of that a later read could have contradicted
- ``families``: lists all built-in checks
- ``judging``: judges a history by a contract
- ``engine``: runs the SQL on SQLite, DuckDB or Spark
- ``sql_idioms``: common SQL fragments that all engines understand alike
- ``partitioned_by_key``: judges some keys at a time and combines the results
- ``times``: formats times for readers

The checks, by family:

- ``log``, ``groups``, ``register``, ``objects`` (counters, sets, queues, banks, ids), ``transactions``
- ``liveness``: after the last fault, the system and its clients must make progress
- ``servers``: events and states that servers report
- ``isolation``: isolation levels of transactions, by a search for an order
- ``administration``: topics and settings that an administrator changes
- ``linearizability``: searches for an order of the operations that a model allows
- ``workload_checks``: questions of Jepsen's and Maelstrom's checkers that no family above answers

The package imports ``harness.core`` alone; the harness, ``reports`` and ``workloads`` import it.
"""
