"""Checks of Jepsen's and Maelstrom's workloads that no family in SQL makes. They read operations, not effects.

- ``workload_result``: collects the findings of a check, and makes the judgement
- ``counters``: counters to which amounts are added
- ``visibility``: the order in which writes become visible (causal, causal-reverse, sequential)
- ``phenomena``: dirty reads, and inserts that exclude each other by a predicate
- ``rows``: rows whose values rise with their times (CockroachDB's monotonic)
- ``kafka``: logs with offsets, sends and polls
- ``transaction_models``: models for the search: several registers, and a counter of amounts
- ``catalog``: all checks and their anomalies

The package imports ``checkers.judging.verdict``, ``transactions`` and ``linearizability``; the harness imports
``catalog`` and ``transaction_models``.
"""
