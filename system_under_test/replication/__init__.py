"""Replication: how a partition's leader and its followers keep one log, and when a record counts as committed.

In reading order:

- ``replica``: a partition's log on this broker, in any role, its high watermark, and the error of requests for it
- ``insync``: the in-sync set
- ``leader``, ``follower``: the state of each role during one leader epoch
- ``partition``: changes of role
- ``fetcher``: copies records from a leader
- ``isr_writer``: writes in-sync sets to ZooKeeper
- ``handover``: makes a damaged replica give up leadership and its place in the in-sync set
- ``replicas``: all replicas on this broker's disk, and their maintenance
- ``cleaner``: compacts the replicas' logs
- ``throttle``: limits the rate of replication
- ``manager``: executes the controller's requests, and answers testers; ``request_dedup`` rejects late duplicates
- ``produce``, ``fetch``, ``offsets``: requests of clients and followers; ``purgatory`` has the requests that wait
- ``traits``: the behavior that a historic defect replaces

The controller, groups and the broker itself import this package. It imports ``log``, ``records``, ``storage``,
``zookeeper``, ``network`` and ``protocol``.
"""
