"""Which message has which key, and which versions of it are spoken: values, built here and nowhere else.

``announced`` says whether ApiVersions may list it for all clients; requests among brokers (keys from 1000 up) stay
private. What a server really announces are the announced APIs for which it was given a handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from assay.system_under_test.protocol.control import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from assay.system_under_test.protocol.fetch import FetchRequest
from assay.system_under_test.protocol.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from assay.system_under_test.protocol.groups import (
    DescribeGroupsRequest,
    GroupCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from assay.system_under_test.protocol.metadata import MetadataRequest
from assay.system_under_test.protocol.offsets import ListOffsetsRequest
from assay.system_under_test.protocol.produce import ProduceRequest
from assay.system_under_test.protocol.schema import request_info
from assay.system_under_test.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from assay.system_under_test.protocol.versions import ApiVersionRange, ApiVersionsRequest, ApiVersionsResponse

FIRST_PRIVATE_KEY = 1000


@dataclass(frozen=True, slots=True)
class Api:
    """One kind of request; versions ``min_version`` to ``max_version`` are understood, both included."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    announced: bool

    def speaks(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


def api(request: type[Any]) -> Api:
    """Describes a request by what its declaration says."""
    info = request_info(request)
    name = request.__name__.removesuffix("Request")
    announced = info.key < FIRST_PRIVATE_KEY
    return Api(info.key, name, request, info.response, info.min_version, info.max_version, announced)


def api_table(requests: Iterable[type[Any]]) -> Mapping[int, Api]:
    """A read-only table by key. Raises ``ValueError`` when two requests have the same key."""
    table: dict[int, Api] = {}
    for entry in map(api, requests):
        if entry.key in table:
            raise ValueError(f"{entry.name} and {table[entry.key].name} both have key {entry.key}")
        table[entry.key] = entry
    return MappingProxyType(table)


APIS: Mapping[int, Api] = api_table(
    [
        ProduceRequest,
        FetchRequest,
        ListOffsetsRequest,
        MetadataRequest,
        LeaderAndIsrRequest,
        StopReplicaRequest,
        UpdateMetadataRequest,
        ControlledShutdownRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        GroupCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        ApiVersionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
    ]
)
"""The public APIs."""


def api_versions(apis: Iterable[Api], error_code: int = 0) -> ApiVersionsResponse:
    """The answer to ApiVersions: those of ``apis`` that are announced, by key."""
    ranges = [
        ApiVersionRange(api_key=entry.key, min_version=entry.min_version, max_version=entry.max_version)
        for entry in sorted(apis, key=lambda entry: entry.key)
        if entry.announced
    ]
    return ApiVersionsResponse(error_code=error_code, api_versions=ranges)
