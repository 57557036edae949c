"""Checks of a log: sends return offsets, polls return offsets and values.

``family`` says how a workload records itself, and lists the checks. ``views`` is what they share; then ``integrity``
(what an offset and a value may hold), ``loss`` (what must stay), ``order`` (of sends), ``poll_order`` (of reads) and
``ends``. Statements held against each other: ``positions`` (of readers), ``altered`` (records), ``retention`` (log
starts), ``offset_by_time`` (look-ups), ``bounds`` (starts and look-ups against ends), ``stuck`` (readers);
``incarnations`` takes keys apart. ``rejected_sends`` (readers that were sent away), ``long_poll`` (fetches that wait),
``reports`` (of producers on one message) and ``wrong_partition`` (records in another partition than theirs) look at
what clients were answered.

Families of their own: ``unflushed`` (what a power loss may take), ``replicas`` and ``holes`` (what the disks hold),
``compaction`` (the last value of each key stays), ``damaged_files`` (logs that no fault has damaged), ``epochs`` (where
each leader begins), ``in_sync_joins`` (who joins the in-sync set), ``partition_state`` (of partitions, in ZooKeeper)
and
``transitions`` (of the controller's state machines).

Imports what all checks share, and ``rest.looks``; ``checkers.groups`` and ``checkers.liveness`` import some of its
views, and the workloads its families' names.
"""
