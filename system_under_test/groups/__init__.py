"""Consumer groups: membership, generations and committed offsets, kept by a coordinator in the offsets topic.

State, in reading order:

- ``member`` and ``group``: the state machine of one group
- ``session_timers``: detection of expired members
- ``records``: the format of the offsets topic's records
- ``stored_groups``: the groups of one partition of the offsets topic
- ``terms``: the partitions of the offsets topic that this broker leads

Requests:

- ``coordinator``: the entry; begins and ends terms, finds coordinators, expires offsets
- ``group_requests``: joins, syncs, heartbeats and leaves of members; descriptions for admin tools
- ``offset_requests``: commits and fetches, in the offsets topic or in ZooKeeper

Other parts:

- ``kill_points``: events at which a coordinator may be killed
- ``traits``: the parts that a historic defect replaces
- ``draft``: the earlier design of coordination

The package imports ``replication`` and the layers below. The broker imports it, and ``deployment`` imports
``kill_points``.
"""
