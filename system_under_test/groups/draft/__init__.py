"""The draft of the group protocol: the coordinator assigns partitions and keeps each group in one znode.

Modules, in reading order:

- ``metadata``: the znode of a group, and the only way to write it
- ``group``: the states of one group and its consumers
- ``term``: the groups of one partition of the offsets topic, and the numbers of partitions to assign
- ``coordinator``: the requests

docs/broker/groups.md describes the design. The coordinator of ``groups`` imports this package, which uses that
package's timers, errors and stored offsets.
"""
