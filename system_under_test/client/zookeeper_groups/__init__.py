"""Consumer groups of the old design: members find each other and agree through ZooKeeper alone.

Modules, in reading order:

- ``connector``: the interface for applications, and commits that are cancelled when a claim is lost
- ``config``: its settings
- ``subscription``: topics by name or by filter
- ``view``: the group as stored in ZooKeeper, and the assignment computed from it
- ``registration``: membership, the fence that it gives, and its validity
- ``ownership``: claims of partitions
- ``offsets``: offsets in ZooKeeper, in the offsets topic, or in both
- ``streams``: the messages that an application reads

The design is known to be unsafe. A consumer that was disconnected or paused can notice only by its own clock that
others may have taken over. The member does what it can: once its session may have expired, it returns no records and
commits nothing to ZooKeeper. Records that were returned just before are beyond its control.

This package imports the consumer and the assignors of ``client``, and ``zookeeper``. ``client`` imports its settings
and sessions, and workloads import it.
"""
