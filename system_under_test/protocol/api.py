"""The API table (key and supported versions of each request), and ApiVersions (key 18, KIP-35), which returns it.

ApiVersions never lists private APIs, such as requests among brokers (keys from 1000 up). A server lists only the APIs
for which it has a handler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from assay.system_under_test.protocol import control, fetch, group_offsets, groups, metadata, offsets, produce, topics
from assay.system_under_test.protocol.schema import Int16, Request, get_request_info, message, request

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
    """The request has no fields."""


FIRST_PRIVATE_KEY = 1000


@dataclass(frozen=True, slots=True)
class Api:
    """A kind of request. Versions from ``min_version`` to ``max_version``, both included, are supported."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    announced: bool
    """Whether ApiVersions lists it."""

    def supports_version(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


def build_api_table(requests: Iterable[type[Any]]) -> Mapping[int, Api]:
    """Returns a read-only table by key. Raises ``ValueError`` if two requests have the same key."""
    table: dict[int, Api] = {}
    for request_class in requests:
        name, info = request_class.__name__.removesuffix("Request"), get_request_info(request_class)
        if info.key in table:
            raise ValueError(f"{name} and {table[info.key].name} both have key {info.key}")
        announced = info.key < FIRST_PRIVATE_KEY
        table[info.key] = Api(
            info.key, name, request_class, info.response, info.min_version, info.max_version, announced
        )
    return MappingProxyType(table)


APIS: Mapping[int, Api] = build_api_table(
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


def build_api_versions_response(apis: Iterable[Api], error_code: int = 0) -> ApiVersionsResponse:
    """Builds the response to ApiVersions: the announced ones among ``apis``, sorted by key."""
    ranges = [
        ApiVersionRange(api_key=entry.key, min_version=entry.min_version, max_version=entry.max_version)
        for entry in sorted(apis, key=lambda entry: entry.key)
        if entry.announced
    ]
    return ApiVersionsResponse(error_code=error_code, api_versions=ranges)
