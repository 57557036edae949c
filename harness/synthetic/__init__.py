"""Synthetic histories: correct objects with many clients and, on request, planted anomalies.

They test the checks at sizes that no test run reaches, and are made in a few seconds. Read the modules in this order:

- ``catalogue`` (the kinds of objects and their anomalies), ``plan`` (what to make), ``generate`` (makes it).
- ``timeline`` (times, processes and outcomes of operations, a chunk at a time), ``traffic`` (what all objects share),
  ``state`` (what objects remember from one chunk to the next).
- the objects: ``log`` (its end: ``log_drain``), ``register``, ``counter``, ``max_register``, ``sets``, ``queue``,
  ``txn``, ``bank``, ``ids``, ``monotonic``, ``group``, ``offsets``, ``lease``.
- anomalies: ``anomaly_template`` (the few operations of one); ``log_scenes``, ``register_scenes``, ``txn_scenes`` and
  ``group_scenes``, one scene for each. ``log_rows`` has the effects of sends, polls and looks at a log's end.
- ``segments`` (running sums per key), ``values``, ``rows`` (columns to Arrow), ``background_writer`` (a thread that
  writes).

All modules work on arrays, never on single operations. Only ``assay generate`` and tests import this package; it
imports ``harness.core`` alone.
"""
