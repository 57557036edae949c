"""The earlier draft of the group protocol: the coordinator itself assigns, and keeps each group in one znode.

To read in this order: ``metadata`` (the znode, and the only way to write it), ``consumer`` and ``group`` (the states of
one group), ``topics`` (how many partitions there are to assign), ``term`` (the groups of one partition of the offsets
topic), ``coordinator`` (the requests). docs/broker/groups.md describes the design.

The coordinator of ``groups`` imports it; it uses that package's timers, errors and stored offsets.
"""
