"""The log of one partition, and the small files next to it.

In reading order:

- ``log``: appends, reads, searches and truncations
- ``segment_list``: a log's segments, and how far they are durable
- ``segment``: one file of entries, and reads from it; it uses ``index``, ``times``, ``scan`` and ``files``
- ``recovery``: opens a log after a crash; ``preallocation``: files that end in zeros
- ``retention``: removes old segments
- ``cleaner``: compacts a log; it uses ``swap`` and ``compaction_note``
- ``epochs``: the epoch history of a log; ``checkpoints``: offsets per partition, such as high watermarks
- ``damage``: the note that a log has lost records
- ``directory``: the layout of a broker's log directory; ``deletion``: removes the folder of a log
- ``config``: the settings of a log
- ``errors``: the errors raised
- ``traits``: the behavior that a historic defect replaces

Replication, groups and the broker itself import this package. It imports ``records``, ``storage`` and modules that all
layers use.
"""
