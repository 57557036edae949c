"""Synthetic histories: of correct logs, registers or groups with many clients, and, if asked, one anomaly in them.

``plan`` (what to make), ``slots`` (times, processes, outcomes), ``segments`` (running sums per key), ``rows`` (columns
to Arrow), ``scene`` (the few operations of an anomaly); ``log`` with ``log_values``, ``log_drain`` and ``log_scenes``;
``register`` with ``register_scenes``; ``group`` with ``group_scenes``.
"""
