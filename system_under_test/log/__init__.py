"""The log of one partition, and the small files next to it.

To read in this order: ``log`` (appends, reads, cuts), ``segment_list`` (its segments, and what of them is durable),
``segment`` (one file of entries) on ``index``, ``times`` with ``time_index``, ``scan``, ``slices`` and ``files``;
``recovery`` (opening after a crash; ``preallocation``: of files that end in zeros). On a log work ``retention`` (takes
old segments out), ``search`` (finds offsets by time) and ``cleaner`` (compacts, by ``swap`` and with what
``tombstones`` remembers).
``epochs`` and ``checkpoints`` are what replication notes about logs, ``damage`` what a log notes of what it has lost,
``directory`` how they lie on a broker's disk. ``config`` has the settings, ``errors`` what is raised, ``traits`` what a
historic defect changes.

Imports ``records``, ``storage`` and the modules that all of the broker may know. Replication, groups and the broker
itself import it.
"""
