"""Client of the broker's log, with all operations on logs and topics."""

from collections.abc import Sequence
from typing import ClassVar

from assay.workloads.broker.bursts import Burst
from assay.workloads.broker.log_operations import End, Glance, LookUp, Poll, Send
from assay.workloads.broker.multi_fetch_operations import ListOffsets, LongPoll, MultiPartitionFetch
from assay.workloads.broker.multi_partition_requests import MultiPartitionSend
from assay.workloads.broker.topic_admin import ADMIN
from assay.workloads.broker.verbs import BrokerClient, Verb


class LogClient(BrokerClient):
    """Client with the operations on logs, and with an administrator's operations on topics."""

    verbs: ClassVar[Sequence[type[Verb]]] = (
        Send, Burst, MultiPartitionSend, Poll, Glance, MultiPartitionFetch, LongPoll, End, ListOffsets, LookUp, *ADMIN,
    )  # fmt: skip
