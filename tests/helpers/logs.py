"""Reading all messages of a stretch of a log."""

from __future__ import annotations

from assay.system_under_test.log.log import Log
from assay.system_under_test.records import message_set
from assay.system_under_test.records.message import Message


def stored(log: Log, first: int, last: int) -> list[Message]:
    """The messages from offset ``first`` up to, not including, ``last``. Raises as ``Log.read``."""
    messages: list[Message] = []
    while first < last:
        data = log.read(first, 1 << 20, limit=last).read()
        if not data:
            break
        found = message_set.decode(data)
        messages += [message for message in found if first <= message.offset < last]
        first = found[-1].offset + 1
    return messages
