"""Brokers that say what a test wants, on loopback sockets."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from assay.system_under_test.network.handler import CloseConnection, RequestContext
from assay.system_under_test.network.server import Server
from assay.system_under_test.protocol.api import APIS
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from assay.system_under_test.protocol.internal import INTERNAL_APIS
from assay.system_under_test.protocol.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from assay.system_under_test.protocol.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from assay.system_under_test.protocol.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from assay.system_under_test.protocol.topics import (
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeReassignmentsRequest,
    DescribeReassignmentsResponse,
    ElectPreferredRequest,
    PartitionChangeResponse,
    PartitionChangeResult,
    ReassignRequest,
)
from assay.system_under_test.records import message_set


class FakeRuntime:
    """A seeded random and a clock that stands."""

    host_name = "here"

    def __init__(self) -> None:
        self.random = random.Random(7)

    def wall_clock(self) -> float:
        return 1_500_000_000.0


async def never() -> Any:
    await asyncio.Event().wait()


def lose_connection() -> Any:
    """Returns what a scripted step returns to let the connection end instead of answering."""
    raise CloseConnection("as scripted")


@dataclass
class FakeBroker:
    """Appends and serves ``log``. Each request takes the next of ``script``: an error code, or a call to make first."""

    id: int
    cluster: FakeCluster
    script: list[ErrorCode | Callable[[], Any]] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    server: Server | None = None
    port: int = 0

    async def start(self) -> None:
        handlers = {
            0: self.produce,
            1: self.fetch,
            2: self.offsets,
            3: self.metadata,
            19: self.create,
            20: self.delete,
            1023: self.change_partitions,
            1024: self.change_partitions,
            1025: self.describe_reassignments,
        }
        self.server = Server(handlers, {**APIS, **INTERNAL_APIS})
        await self.server.start(self.cluster.host, self.port)
        self.port = self.server.port

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.close()
            self.server = None

    async def step(self, request: Any) -> ErrorCode:
        self.requests.append(request)
        step = self.script.pop(0) if self.script else ErrorCode.NONE
        if isinstance(step, ErrorCode):
            return step
        outcome = step()
        if asyncio.iscoroutine(outcome):
            await outcome
        return ErrorCode.NONE

    async def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
        partition = request.topics[0].partitions[0]
        error = await self.step(request)
        offset = -1
        if error is ErrorCode.NONE:
            offset = len(self.cluster.log)
            self.cluster.log += [m.value for m in message_set.decode(bytes(partition.records))]  # type: ignore[arg-type]
        if request.acks == 0:
            return None
        found = ProducePartitionResponse(partition=partition.partition, error_code=error, base_offset=offset)
        return ProduceResponse(topics=[ProduceTopicResponse(topic=request.topics[0].topic, partitions=[found])])

    async def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        error = await self.step(request)
        log = self.cluster.log
        records = message_set.build([(None, value, 1) for value in log[wanted.offset :]], 1, wanted.offset)
        found = FetchPartitionResponse(
            partition=wanted.partition,
            error_code=error,
            high_watermark=-1 if error else len(log),
            records=b"" if error else records[: wanted.max_bytes],
        )
        return FetchResponse(topics=[FetchTopicResponse(topic=request.topics[0].topic, partitions=[found])])

    async def offsets(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        wanted = request.topics[0].partitions[0]
        error = await self.step(request)
        offset = {-1: len(self.cluster.log), -2: 0}.get(wanted.timestamp, -1)
        found = ListOffsetsPartitionResponse(
            partition=wanted.partition, error_code=error, offset=-1 if error else offset
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic=request.topics[0].topic, partitions=[found])])

    async def create(self, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
        error = await self.step(request)
        return CreateTopicsResponse(topics=[CreateTopicResult(topic=t.topic, error_code=error) for t in request.topics])

    async def delete(self, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
        error = await self.step(request)
        return DeleteTopicsResponse(topics=[DeleteTopicResult(topic=t, error_code=error) for t in request.topics])

    async def change_partitions(
        self, request: ElectPreferredRequest | ReassignRequest, context: RequestContext
    ) -> PartitionChangeResponse:
        error = await self.step(request)
        said = [
            PartitionChangeResult(topic=p.topic, partition=p.partition, error_code=error, error_message=None)
            for p in request.partitions
        ]
        return PartitionChangeResponse(partitions=said)

    async def describe_reassignments(
        self, request: DescribeReassignmentsRequest, context: RequestContext
    ) -> DescribeReassignmentsResponse:
        return DescribeReassignmentsResponse(
            error_code=await self.step(request), error_message=None, moving=[], settled=[]
        )

    async def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        self.cluster.lookups += 1
        cluster = self.cluster
        code = ErrorCode.NONE if cluster.leader in cluster.brokers else ErrorCode.LEADER_NOT_AVAILABLE
        partitions = [
            MetadataPartition(error_code=code, partition=index, leader=cluster.leader, replicas=[1, 2], isr=[1, 2])
            for index in range(4)
        ]
        topics = [
            MetadataTopic(error_code=0, topic=name, partitions=partitions)
            if name in cluster.topics
            else MetadataTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name, partitions=[])
            for name in (cluster.topics if request.topics is None else request.topics)
        ]
        brokers = [MetadataBroker(node_id=b.id, host=cluster.host, port=b.port) for b in cluster.brokers.values()]
        return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=cluster.controller, topics=topics)


@dataclass
class FakeCluster:
    """Two brokers with one log; ``leader`` and ``controller`` are what Metadata says."""

    host: str = "127.0.0.1"
    brokers: dict[int, FakeBroker] = field(default_factory=dict)
    topics: list[str] = field(default_factory=lambda: ["t"])
    leader: int = 1
    controller: int = 1
    log: list[bytes | None] = field(default_factory=list)
    lookups: int = 0

    @property
    def bootstrap(self) -> list[str]:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return [f"{host}:{broker.port}" for broker in self.brokers.values()]


@contextlib.asynccontextmanager
async def fake_cluster(host: str = "127.0.0.1") -> AsyncIterator[FakeCluster]:
    """Afterwards no task of the client may be left."""
    cluster = FakeCluster(host)
    for number in (1, 2):
        cluster.brokers[number] = FakeBroker(number, cluster)
        await cluster.brokers[number].start()
    try:
        yield cluster
    finally:
        for broker in cluster.brokers.values():
            await broker.stop()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, left
