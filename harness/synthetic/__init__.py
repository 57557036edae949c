"""Synthetic histories: correct objects with many clients and, on request, planted anomalies.

They test the checks at sizes that no test run reaches, and are made in a few seconds. Read the modules in this order:

- ``catalogue`` (the kinds of objects and their anomalies), ``plan`` (what to make), ``generate`` (makes it).
- ``model``: the base class of objects, which play one operation after the other, in plain Python.
- ``tiles``: some thousand operations of a model, which are copied with other numbers.
- ``history``: builds a history from tiles and scenes. A scene has the few operations of one anomaly.
- the objects with their anomalies: ``log``, ``group``, ``registers``, ``lease``, ``txn``, ``containers``, ``bank``,
  ``counters``.

Only ``assay generate`` and tests import this package; it imports ``harness.core`` alone.
"""
