"""What consumers of a group send each other through their coordinator, which does not look into it: the topics they
want, and the partitions they are given (protocol type ``consumer``, version 0).
"""

from typing import Final

from assay.system_under_test.protocol.schema import Int16, Int32, message

PROTOCOL_TYPE: Final = "consumer"


@message
class Subscription:
    version: Int16 = 0
    topics: list[str]
    user_data: bytes = b""


@message
class AssignedTopic:
    topic: str
    partitions: list[Int32]


@message
class Assignment:
    version: Int16 = 0
    topics: list[AssignedTopic]
    user_data: bytes = b""
