"""Checks of a log whose sends return offsets and whose polls return offsets and values.

- ``family``: the families of log checks, and how a workload records itself.
- ``views``: the tables that the checks share.
- ``integrity``: which value an offset may hold, and which offset a value may have.
- ``loss``: acknowledged and observed values that are gone.
- ``order``: the order of sends. ``poll_order``: the order of reads.
- ``ends``: reported log ends. ``bounds``: log starts and look-ups, compared with log ends.
- ``positions``: where a reader's polls begin. ``stuck``: readers that make no progress.
- ``altered``: records that differ from what was sent. ``wrong_partition``: records in a partition to which no one sent
  them.
- ``retention``: log starts, and records that deletion may remove. ``offset_by_time``: look-ups by time.
- ``fetches``: fetches rejected as out of range, and fetches that wait.
- ``reports``: a producer's reports of one message.

These modules make families of their own:

- ``unflushed``: records that a power loss may remove.
- ``replicas``: records on the replicas' disks.
- ``epochs``: starts of leader epochs, joins of the in-sync set, and damaged logs.
- ``partition_state``: the state of partitions in ZooKeeper.
- ``transitions``: the controller's state machines.

The package imports the modules that all checks share. ``checkers.groups`` and ``checkers.liveness`` import some of its
views, and the workloads import the names of its families.
"""
