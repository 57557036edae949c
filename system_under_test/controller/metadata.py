"""The metadata cache of each broker: the cluster as the controller last described it. Answers Metadata requests."""

from collections.abc import Iterable, Mapping, Sequence

from assay.system_under_test.config import INTERNAL_TOPICS
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol import internal, metadata
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.replication.request_dedup import RequestDeduplicator
from assay.system_under_test.zookeeper.znodes import NO_LEADER


class MetadataCache:
    """The cache. The watcher of /controller sets ``controller_id``; -1 means that none is known.

    Late duplicates of the controller's requests are ignored (``replication.request_dedup``).

    The controller sends the complete metadata after this broker has registered. Until then the answer for an unknown
    topic is a retriable error, because clients do not retry after "unknown topic".
    """

    def __init__(self) -> None:
        self.controller_id = -1
        self.cluster_id = ""
        self._brokers: dict[int, internal.LiveBroker] = {}
        self._topics: dict[str, dict[int, internal.PartitionStateUpdate]] = {}
        self._deduplicator = RequestDeduplicator()
        self._complete = False

    def update(self, request: internal.UpdateMetadataRequest) -> Sequence[str]:
        """Updates the cache. Returns the topics that were deleted; none for a late duplicate."""
        if not self._deduplicator.admit(request):
            return ()
        self._brokers = {broker.broker_id: broker for broker in request.live_brokers}
        if request.full:
            self._topics, self._complete = {}, True
        for topic in request.deleted:  # first: another topic of that name may exist by now
            self._topics.pop(topic, None)
        for partition in request.partitions:
            self._topics.setdefault(partition.topic, {})[partition.partition] = partition
        return request.deleted

    def update_leaders(self, request: internal.LeaderAndIsrRequest) -> None:
        """Updates leaders of known partitions, so that a client rejected by the old leader finds the new one at once.

        Adds no partitions. LeaderAndIsr has only the partitions that this broker replicates, and the cache would show
        them as the whole topic.
        """
        if not self._deduplicator.admit(request):
            return
        self._brokers = {broker.broker_id: broker for broker in request.live_brokers}
        for partition in request.partitions:
            known = self._topics.get(partition.topic, {})
            if partition.partition in known:
                known[partition.partition] = partition

    def list_brokers(self) -> Iterable[internal.LiveBroker]:
        return self._brokers.values()

    def find_controller(self) -> internal.LiveBroker | None:
        """Returns the address of the active controller, if known."""
        return self._brokers.get(self.controller_id)

    def find_state(self, topic: str, index: int) -> internal.PartitionStateUpdate | None:
        return self._topics.get(topic, {}).get(index)

    def find_leaders(self, topic: str) -> Mapping[int, internal.LiveBroker | None]:
        """Returns the live leader of each known partition; empty for a topic that does not exist."""
        return {index: self._brokers.get(state.leader) for index, state in self._topics.get(topic, {}).items()}

    def answer(self, request: metadata.MetadataRequest, context: RequestContext) -> metadata.MetadataResponse:
        wanted = metadata.find_requested_topics(request, context.api_version)
        names = sorted(self._topics) if wanted is None else wanted
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataBroker(node_id=b.broker_id, host=b.host, port=b.port) for b in self._brokers.values()
            ],
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            topics=[self._describe_topic(name) for name in names],
        )

    def _describe_topic(self, name: str) -> metadata.MetadataTopic:
        partitions = self._topics.get(name)
        if partitions is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._complete else ErrorCode.LEADER_NOT_AVAILABLE
            return metadata.MetadataTopic(error_code=error, topic=name, partitions=[])
        states = [self._describe_partition(partitions[index]) for index in sorted(partitions)]
        is_internal = name in INTERNAL_TOPICS
        return metadata.MetadataTopic(error_code=ErrorCode.NONE, topic=name, is_internal=is_internal, partitions=states)

    def _describe_partition(self, state: internal.PartitionStateUpdate) -> metadata.MetadataPartition:
        has_leader = state.leader != NO_LEADER and state.leader in self._brokers
        return metadata.MetadataPartition(
            error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
            partition=state.partition,
            leader=state.leader if has_leader else NO_LEADER,
            replicas=state.replicas,
            isr=state.isr,
        )
