"""Which message has which key, and which versions of it are spoken; ApiVersions (key 18, KIP-35), which says so.

``announced`` says whether ApiVersions may list it for all clients; requests among brokers (keys from 1000 up) stay
private. What a server really announces are the announced APIs for which it was given a handler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from assay.system_under_test.protocol import control, fetch, group_offsets, groups, metadata, offsets, produce, topics
from assay.system_under_test.protocol.schema import Int16, Request, message, request, request_info

API_VERSIONS_KEY = 18


@message
class ApiVersionRange:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class ApiVersionsResponse:
    error_code: Int16
    api_versions: list[ApiVersionRange]


@request(key=API_VERSIONS_KEY, versions=(0, 0))
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Has no fields."""


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
        produce.ProduceRequest,
        fetch.FetchRequest,
        offsets.ListOffsetsRequest,
        metadata.MetadataRequest,
        control.LeaderAndIsrRequest,
        control.StopReplicaRequest,
        control.UpdateMetadataRequest,
        control.ControlledShutdownRequest,
        group_offsets.OffsetCommitRequest,
        group_offsets.OffsetFetchRequest,
        groups.GroupCoordinatorRequest,
        groups.JoinGroupRequest,
        groups.HeartbeatRequest,
        groups.LeaveGroupRequest,
        groups.SyncGroupRequest,
        groups.DescribeGroupsRequest,
        groups.ListGroupsRequest,
        ApiVersionsRequest,
        topics.CreateTopicsRequest,
        topics.DeleteTopicsRequest,
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
