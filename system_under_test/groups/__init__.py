"""Groups of consumers: membership, generations and committed offsets, kept by a coordinator in the offsets topic.

To read in this order: ``member`` and ``group`` (the states of one group) on ``session_timers``, ``records`` (what lies
in the offsets topic), ``offset_store`` (the groups of one of its partitions), ``terms`` (the partitions that this
broker leads, and so the groups). Then the requests: ``coordinator`` (the entry: terms begin and end, coordinators are
found, offsets expire), ``member_requests``, ``offset_requests`` with ``zookeeper_offsets`` (version 0),
``descriptions``.
``kill_points`` are events at which a coordinator may be killed, ``traits`` what a historic defect changes. ``draft`` is
the earlier design of coordination.

Imports ``replication`` and what lies below it. The broker imports it, and ``deployment`` its ``kill_points``.
"""
