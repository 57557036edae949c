"""Record formats 0 and 1, as they travel on the wire and lie on the disk.

To read in this order: ``message`` (one message), ``message_set`` (a sequence of them), ``wrapper`` (several compressed
into one), ``compression`` (the codecs), ``produced`` (a set on its way into a log). Imports nothing of the broker; its
log, replication, groups and clients import it.
"""
