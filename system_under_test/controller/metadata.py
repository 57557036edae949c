"""What every broker knows of the whole cluster, as the controller sent it, and the Metadata request that reads it."""

from collections.abc import Iterable, Mapping

from assay.system_under_test.config import INTERNAL_TOPICS
from assay.system_under_test.network.handler import Context
from assay.system_under_test.protocol import internal, metadata
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.replication.request_dedup import News
from assay.system_under_test.zookeeper.znodes import NO_LEADER


class MetadataCache:
    """``controller_id`` is kept by the one that watches /controller; -1 when none is known.

    A late copy of one of the controller's requests changes nothing (``replication.news``). Until the controller has
    sent all of it, which it does once this broker is registered, no topic is said to be unknown: clients take that for
    final, and one that is to be tried again is what a broker that has just been started can say.
    """

    def __init__(self) -> None:
        self.controller_id = -1
        self.cluster_id = ""
        self._brokers: dict[int, internal.LiveBroker] = {}
        self._topics: dict[str, dict[int, internal.PartitionStateUpdate]] = {}
        self._news = News()
        self._whole = False

    def update(self, request: internal.UpdateMetadataRequest) -> None:
        if not self._news.admit(request):
            return
        self._brokers = {broker.broker_id: broker for broker in request.live_brokers}
        if request.full:
            self._topics, self._whole = {}, True
        for topic in request.deleted:  # first: there may be another of that name by now
            self._topics.pop(topic, None)
        for partition in request.partitions:
            self._topics.setdefault(partition.topic, {})[partition.partition] = partition

    def learn(self, request: internal.LeaderAndIsrRequest) -> None:
        """A new role is news for clients too: one that is turned away by the old leader must find the new one here,
        before the metadata proper has come round. New partitions are taken from the metadata proper only: a
        broker gets roles for those that it replicates, and would show half a topic as a whole one.
        """
        if not self._news.admit(request):
            return
        self._brokers = {broker.broker_id: broker for broker in request.live_brokers}
        for partition in request.partitions:
            known = self._topics.get(partition.topic, {})
            if partition.partition in known:
                known[partition.partition] = partition

    def brokers(self) -> Iterable[internal.LiveBroker]:
        return self._brokers.values()

    def controller(self) -> internal.LiveBroker | None:
        """Where the active controller is reached, if it is known."""
        return self._brokers.get(self.controller_id)

    def state(self, topic: str, index: int) -> internal.PartitionStateUpdate | None:
        return self._topics.get(topic, {}).get(index)

    def leaders(self, topic: str) -> Mapping[int, internal.LiveBroker | None]:
        """The live leader of each partition that is known; empty for a topic that does not exist."""
        return {index: self._brokers.get(state.leader) for index, state in self._topics.get(topic, {}).items()}

    def answer(self, request: metadata.MetadataRequest, context: Context) -> metadata.MetadataResponse:
        wanted = metadata.topics_wanted(request, context.api_version)
        names = sorted(self._topics) if wanted is None else wanted
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataBroker(node_id=b.broker_id, host=b.host, port=b.port) for b in self._brokers.values()
            ],
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> metadata.MetadataTopic:
        partitions = self._topics.get(name)
        if partitions is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._whole else ErrorCode.LEADER_NOT_AVAILABLE
            return metadata.MetadataTopic(error_code=error, topic=name, partitions=[])
        states = [self._partition(partitions[index]) for index in sorted(partitions)]
        own = name in INTERNAL_TOPICS
        return metadata.MetadataTopic(error_code=ErrorCode.NONE, topic=name, is_internal=own, partitions=states)

    def _partition(self, state: internal.PartitionStateUpdate) -> metadata.MetadataPartition:
        led = state.leader != NO_LEADER and state.leader in self._brokers
        return metadata.MetadataPartition(
            error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
            partition=state.partition,
            leader=state.leader if led else NO_LEADER,
            replicas=state.replicas,
            isr=state.isr,
        )
