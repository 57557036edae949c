"""Synthetic histories: of correct objects with many clients, and, if asked, anomalies in them.

``catalogue`` (what there is), ``plan`` (what to make), ``traffic`` (what all kinds of objects share), ``slots`` (times,
processes, outcomes), ``state`` (what objects remember), ``segments`` (running sums per key), ``lives`` (keys that come
one after the other), ``rows`` (columns to Arrow), ``behind`` (who writes them), ``values``, ``scene`` (the few
operations of an anomaly), ``alone`` (what comes after the main phase). Kinds of objects: ``log``, ``register``,
``group``, ``offsets``, ``lease``, ``txn``, ``queue``, ``sets``, ``max_register``, ``counter``, some with their
``_scenes`` and their ``_drain``.
"""
