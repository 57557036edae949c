"""Record formats 0 and 1, as they travel on the wire and lie on the disk.

Modules, in reading order:

- ``message``: one message
- ``message_set``: a sequence of messages
- ``wrapper``: several messages compressed into one
- ``compression``: the codecs
- ``produced``: validates a produced set and stamps its offsets before the append

The package imports nothing of the broker. The broker's log, replication, groups and clients import it.
"""
