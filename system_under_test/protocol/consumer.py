"""What consumers of a group send each other through their coordinator, which does not look into it: the topics they
want, and the partitions they are given (protocol type ``consumer``, version 0).
"""

from __future__ import annotations

from typing import Final

from assay.system_under_test.protocol.schema import BYTES, INT16, INT32, STRING, array, message, wire

PROTOCOL_TYPE: Final = "consumer"


@message
class Subscription:
    version: int = wire(INT16, default=0)
    topics: list[str] = wire(array(STRING))
    user_data: bytes = wire(BYTES, default=b"")


@message
class AssignedTopic:
    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@message
class Assignment:
    version: int = wire(INT16, default=0)
    topics: list[AssignedTopic] = wire(array(AssignedTopic))
    user_data: bytes = wire(BYTES, default=b"")
