"""Workloads for any system; each module is a template to copy.

- ``registers``, ``sets``, ``queues``, ``locks``, ``unique_ids``, ``monotonic``
- for systems with transactions: ``bank``, ``list_append``, ``long_fork``

Imports the harness and the contracts of the checks.
"""
