"""Message formats 0 and 1, which are the same on the wire and on disk.

Modules, in reading order:

- ``message``: one message
- ``message_set``: a sequence of messages
- ``wrapper``: several messages compressed into one
- ``compression``: the codecs
- ``steps``: work on compressed messages in steps, between which other tasks run
- ``produced``: validates a producer's message set, and sets its offsets before the append

The package imports nothing of the broker. The broker's log, replication and groups import it, and so do clients.
"""
