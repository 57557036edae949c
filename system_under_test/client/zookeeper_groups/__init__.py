"""Consumer groups of the old design: members find each other and agree through ZooKeeper alone.

Modules, in reading order:

- ``connector``: the interface for applications, and commits that are cancelled when a claim is lost
- ``config``: the connector's settings
- ``subscription``: topics by name or by filter
- ``view``: the group as stored in ZooKeeper, and the assignment computed from it
- ``registration``: membership, the fence that it gives, and its validity
- ``ownership``: claims of partitions
- ``offsets``: offsets in ZooKeeper, in the offsets topic, or in both
- ``streams``: the messages that an application reads

The design is known to be unsafe. A consumer that was disconnected or paused can notice only by its own clock that other
members may have taken over. When its session may have expired, it returns no more records and commits nothing to
ZooKeeper. But the application may still process records that it got just before.

Workloads import this package, and ``client`` imports its settings and sessions. It imports ``zookeeper``, and the
consumer and the assignors of ``client``.
"""
