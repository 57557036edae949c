"""The log of one partition, and the small files next to it.

In reading order:

- ``log``: appends, reads, searches and truncations
- ``segment_list``: a log's segments, and how far they are durable
- ``segment``: one file of entries and reads from it, on ``index``, ``times``, ``scan`` and ``files``
- ``recovery``: opens a log after a crash; ``preallocation``: files that end in zeros
- ``retention``: removes old segments
- ``cleaner``: compacts a log, on ``swap`` and ``tombstones``
- ``epochs``, ``checkpoints``: what replication stores about logs
- ``damage``: the note of a log's losses
- ``directory``: the layout of a broker's log directory; ``deletion``: removes the folder of a log
- ``config``: the settings of a log
- ``errors``: the errors raised
- ``traits``: the behavior that a historic defect replaces

Imports ``records``, ``storage`` and the modules that all of the broker may know. Replication, groups and the broker
itself import it.
"""
