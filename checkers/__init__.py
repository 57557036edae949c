"""Proves from a history that promises were kept, or names the operations that contradict each other.

A verdict is made by these modules:

- ``check``: declares a check: SQL views over the history's tables, and a template of its findings
- ``claims``: templates that put a violation into words
- ``exposure``: which claims of a history it could have contradicted
- ``families``: lists all built-in checks
- ``judging``: judges a history by a contract
- ``engine``: runs the SQL on SQLite, DuckDB or Spark
- ``sql_idioms``: common SQL fragments that all engines understand alike
- ``partitioned_by_key``: judges some keys at a time and combines the results
- ``times``: formats times for readers

The checks, by family:

- ``log``, ``groups``, ``register``, ``objects`` (counters, sets, queues, banks, ids), ``transactions``
- ``liveness``: work that was begun must end
- ``servers``: observations of the servers themselves
- ``administration``: topics and settings that an administrator changes
- ``linearizability``: searches for a legal order of operations, by a model

The package imports ``harness.core`` alone; the harness, ``reports`` and ``workloads`` import it.
"""
