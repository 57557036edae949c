"""Frames written by hand, byte for byte, from "A Guide To The Kafka Protocol" and 0.10.2's ``Protocol.java``."""

from __future__ import annotations

from typing import Any

import pytest

from assay.system_under_test.protocol.api import APIS, ApiVersionsRequest, build_api_versions_response
from assay.system_under_test.protocol.compiler import decode
from assay.system_under_test.protocol.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    EndPoint,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrState,
    LiveLeader,
    PartitionName,
    PartitionResult,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataBroker,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from assay.system_under_test.protocol.header import (
    decode_correlation_id,
    decode_request_header,
    encode_request,
    encode_response,
)
from assay.system_under_test.protocol.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from assay.system_under_test.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from assay.system_under_test.protocol.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from assay.system_under_test.protocol.schema import ProtocolError, get_request_info
from assay.system_under_test.protocol.topics import (
    ConfigEntry,
    CreatableTopic,
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ReplicaAssignment,
)


def hexadecimal(text: str) -> bytes:
    """``'text'`` stands for its ASCII bytes, the rest is hexadecimal."""
    parts = text.split("'")
    return b"".join(part.encode() if odd % 2 else bytes.fromhex(part) for odd, part in enumerate(parts))


FETCH = FetchRequest(
    replica_id=-1,
    max_wait_ms=100,
    min_bytes=1,
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=2, offset=5, max_bytes=4096)])],
)
FETCH_V3 = FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=65536, topics=FETCH.topics)

STATE = LeaderAndIsrState(
    topic="t",
    partition=2,
    controller_epoch=3,
    leader=1,
    leader_epoch=4,
    isr=[1],
    zk_version=5,
    replicas=[1, 2],
)
STATE_BYTES = "0001 't' 00000002 00000003 00000001 00000004 00000001 00000001 00000005 00000002 00000001 00000002"


def metadata_update(broker: UpdateMetadataBroker) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=1, controller_epoch=3, partition_states=[STATE], live_brokers=[broker])


REQUESTS: list[tuple[Any, int, str]] = [
    (
        LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=3,
            partition_states=[STATE],
            live_leaders=[LiveLeader(id=1, host="h", port=9092)],
        ),
        0,
        f"0004 0000 00000007 0002 'me'  00000001 00000003 00000001 {STATE_BYTES} 00000001 00000001 0001 'h' 00002384",
    ),
    (
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=3,
            delete_partitions=True,
            partitions=[PartitionName(topic="t", partition=2)],
        ),
        0,
        "0005 0000 00000007 0002 'me'  00000001 00000003 01 00000001 0001 't' 00000002",
    ),
    (
        metadata_update(UpdateMetadataBroker(id=1, host="h", port=9092)),
        0,
        f"0006 0000 00000007 0002 'me'  00000001 00000003 00000001 {STATE_BYTES} 00000001 00000001 0001 'h' 00002384",
    ),
    (
        metadata_update(
            UpdateMetadataBroker(id=1, end_points=[EndPoint(port=9092, host="h", security_protocol_type=0)])
        ),
        1,
        f"0006 0001 00000007 0002 'me'  00000001 00000003 00000001 {STATE_BYTES}"
        " 00000001 00000001 00000001 00002384 0001 'h' 0000",
    ),
    (
        metadata_update(
            UpdateMetadataBroker(id=1, end_points=[EndPoint(port=9092, host="h", security_protocol_type=0)], rack="r")
        ),
        2,
        f"0006 0002 00000007 0002 'me'  00000001 00000003 00000001 {STATE_BYTES}"
        " 00000001 00000001 00000001 00002384 0001 'h' 0000 0001 'r'",
    ),
    (
        metadata_update(
            UpdateMetadataBroker(
                id=1, end_points=[EndPoint(port=9092, host="h", listener_name="L", security_protocol_type=0)]
            )
        ),
        3,
        f"0006 0003 00000007 0002 'me'  00000001 00000003 00000001 {STATE_BYTES}"
        " 00000001 00000001 00000001 00002384 0001 'h' 0001 'L' 0000 ffff",
    ),
    (ControlledShutdownRequest(broker_id=2), 1, "0007 0001 00000007 0002 'me'  00000002"),
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=1500,
            topics=[ProduceTopic(topic="log", partitions=[ProducePartition(partition=1, records=b"abc")])],
        ),
        2,
        "0000 0002 00000007 0002 'me'  ffff 000005dc  00000001 0003 'log' 00000001 00000001 00000003 'abc'",
    ),
    (
        FETCH,
        0,
        "0001 0000 00000007 0002 'me'  ffffffff 00000064 00000001"
        " 00000001 0001 't' 00000001 00000002 0000000000000005 00001000",
    ),
    (
        FETCH_V3,
        3,
        "0001 0003 00000007 0002 'me'  ffffffff 00000064 00000001 00010000"
        " 00000001 0001 't' 00000001 00000002 0000000000000005 00001000",
    ),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(topic="t", partitions=[ListOffsetsPartition(partition=0, timestamp=-1)])],
        ),
        1,
        "0002 0001 00000007 0002 'me'  ffffffff 00000001 0001 't' 00000001 00000000 ffffffffffffffff",
    ),
    (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    topic="t", partitions=[ListOffsetsPartition(partition=0, timestamp=-2, max_num_offsets=3)]
                )
            ],
        ),
        0,
        "0002 0000 00000007 0002 'me'  ffffffff 00000001 0001 't' 00000001 00000000 fffffffffffffffe 00000003",
    ),
    (MetadataRequest(topics=None), 1, "0003 0001 00000007 0002 'me'  ffffffff"),
    (MetadataRequest(topics=["a", "bc"]), 0, "0003 0000 00000007 0002 'me'  00000002 0001 'a' 0002 'bc'"),
    (ApiVersionsRequest(), 0, "0012 0000 00000007 0002 'me'"),
    (
        CreateTopicsRequest(
            topics=[
                CreatableTopic(topic="n", num_partitions=4, replication_factor=3),
                CreatableTopic(
                    topic="m",
                    replica_assignment=[ReplicaAssignment(partition=0, replicas=[1, 2])],
                    configs=[ConfigEntry(name="k", value="v")],
                ),
            ],
            timeout_ms=1000,
            validate_only=True,
        ),
        1,
        "0013 0001 00000007 0002 'me'  00000002"
        " 0001 'n' 00000004 0003 00000000 00000000"
        " 0001 'm' ffffffff ffff 00000001 00000000 00000002 00000001 00000002 00000001 0001 'k' 0001 'v'"
        " 000003e8 01",
    ),
    (
        DeleteTopicsRequest(topics=["n"], timeout_ms=1000),
        0,
        "0014 0000 00000007 0002 'me'  00000001 0001 'n' 000003e8",
    ),
]

PRODUCED = [
    ProduceTopicResponse(
        topic="t", partitions=[ProducePartitionResponse(partition=1, error_code=6, base_offset=-1, log_append_time=-1)]
    )
]
FETCHED = [
    FetchTopicResponse(
        topic="t",
        partitions=[FetchPartitionResponse(partition=1, error_code=0, high_watermark=9, records=b"xyz")],
    )
]
BROKER = MetadataBroker(node_id=1, host="h", port=9092)
TOPIC = MetadataTopic(
    error_code=0,
    topic="t",
    is_internal=True,
    partitions=[MetadataPartition(error_code=5, partition=0, leader=-1, replicas=[1, 2], isr=[])],
)

RESPONSES: list[tuple[Any, int, str]] = [
    (ProduceResponse(topics=PRODUCED), 0, "00000001 0001 't' 00000001 00000001 0006 ffffffffffffffff"),
    (
        ProduceResponse(topics=PRODUCED, throttle_time_ms=3),
        2,
        "00000001 0001 't' 00000001 00000001 0006 ffffffffffffffff ffffffffffffffff 00000003",
    ),
    (
        FetchResponse(topics=FETCHED),
        0,
        "00000001 0001 't' 00000001 00000001 0000 0000000000000009 00000003 'xyz'",
    ),
    (
        FetchResponse(topics=FETCHED, throttle_time_ms=3),
        1,
        "00000003 00000001 0001 't' 00000001 00000001 0000 0000000000000009 00000003 'xyz'",
    ),
    (
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic="t",
                    partitions=[ListOffsetsPartitionResponse(partition=0, error_code=0, offsets=[7, 0])],
                )
            ]
        ),
        0,
        "00000001 0001 't' 00000001 00000000 0000 00000002 0000000000000007 0000000000000000",
    ),
    (
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic="t",
                    partitions=[ListOffsetsPartitionResponse(partition=0, error_code=0, timestamp=-1, offset=7)],
                )
            ]
        ),
        1,
        "00000001 0001 't' 00000001 00000000 0000 ffffffffffffffff 0000000000000007",
    ),
    (
        MetadataResponse(brokers=[BROKER], topics=[TOPIC]),
        0,
        "00000001 00000001 0001 'h' 00002384"
        " 00000001 0000 0001 't' 00000001 0005 00000000 ffffffff 00000002 00000001 00000002 00000000",
    ),
    (
        MetadataResponse(brokers=[BROKER], cluster_id="c", controller_id=1, topics=[TOPIC]),
        1,
        "00000001 00000001 0001 'h' 00002384 ffff 00000001"
        " 00000001 0000 0001 't' 01 00000001 0005 00000000 ffffffff 00000002 00000001 00000002 00000000",
    ),
    (
        MetadataResponse(brokers=[BROKER], cluster_id="c", controller_id=1, topics=[]),
        2,
        "00000001 00000001 0001 'h' 00002384 ffff 0001 'c' 00000001 00000000",
    ),
    (CreateTopicsResponse(topics=[CreateTopicResult(topic="t", error_code=36)]), 0, "00000001 0001 't' 0024"),
    (
        CreateTopicsResponse(topics=[CreateTopicResult(topic="t", error_code=36, error_message="no")]),
        1,
        "00000001 0001 't' 0024 0002 'no'",
    ),
    (DeleteTopicsResponse(topics=[DeleteTopicResult(topic="t", error_code=41)]), 0, "00000001 0001 't' 0029"),
    (
        LeaderAndIsrResponse(error_code=0, partitions=[PartitionResult(topic="t", partition=2, error_code=11)]),
        0,
        "0000 00000001 0001 't' 00000002 000b",
    ),
    (StopReplicaResponse(error_code=11, partitions=[]), 0, "000b 00000000"),
    (UpdateMetadataResponse(error_code=11), 3, "000b"),
    (
        ControlledShutdownResponse(error_code=0, partitions_remaining=[PartitionName(topic="t", partition=2)]),
        1,
        "0000 00000001 0001 't' 00000002",
    ),
    (build_api_versions_response([APIS[18], APIS[0]]), 0, "0000 00000002 0000 0000 0002 0012 0000 0000"),
    (build_api_versions_response([APIS[18]], ErrorCode.UNSUPPORTED_VERSION), 0, "0023 00000001 0012 0000 0000"),
]


@pytest.mark.parametrize(("request_", "version", "expected"), REQUESTS)
def test_requests_are_these_bytes(request_: Any, version: int, expected: str) -> None:
    body = hexadecimal(expected)
    frame = encode_request(request_, version, 7, "me")
    assert frame == len(body).to_bytes(4, "big") + body
    header = decode_request_header(frame[4:])
    assert header[:4] == (get_request_info(type(request_)).key, version, 7, "me")
    assert decode(type(request_), version, frame[4:], header.body) == request_


@pytest.mark.parametrize(("response", "version", "expected"), RESPONSES)
def test_responses_are_these_bytes(response: Any, version: int, expected: str) -> None:
    body = hexadecimal("00000007" + expected)
    assert encode_response(response, version, 7) == [len(body).to_bytes(4, "big") + body]
    assert decode_correlation_id(body) == 7


def test_a_client_without_a_name_is_null() -> None:
    frame = encode_request(ApiVersionsRequest(), 0, 1, None)
    assert frame == hexadecimal("0000000a 0012 0000 00000001 ffff")
    assert decode_request_header(frame[4:]).client_id is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0012",
        "0012 0000 00000001",
        "0012 0000 00000001 0005 'abc'",
        "0012 0000 00000001 fffe",
        "0012 0000 00000001 0001 ff",
    ],
)
def test_a_damaged_header_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(hexadecimal(text))


def test_error_codes_of_the_future_are_unknown() -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_FOR_PARTITION
    assert ErrorCode.of(999) is ErrorCode.UNKNOWN
