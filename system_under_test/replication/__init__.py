"""Replication: how a partition's leader and its followers keep one log, and when a record in it is safe.

To read in this order: ``replica`` (a partition's log on this broker and what is committed of it), ``insync`` (the
in-sync set), ``leader`` and ``follower`` (what a role does in one term), ``partition`` (changes of role),
``fetcher`` (fetches from a leader), ``isr_writer`` (carries in-sync sets to ZooKeeper), ``handover`` (gives up what is
damaged), ``replicas`` (all partitions on this broker's disk), ``cleaner`` (compacts their logs), ``throttle`` (how
fast some are copied), ``manager`` (obeys the controller) with ``request_dedup`` (which of its requests are). Requests
of clients and followers are answered by ``produce``, ``fetch`` and ``offsets``, of testers by ``roles``; those that
wait are in ``purgatory``. ``errors`` has what is raised, ``traits`` what a historic defect changes.

Imports ``log``, ``records``, ``storage``, ``zookeeper``, ``network`` and ``protocol``. The controller, groups and the
broker itself import it.
"""
