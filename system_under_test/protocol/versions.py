"""ApiVersions (key 18), KIP-35: what this broker speaks."""

from __future__ import annotations

from assay.system_under_test.protocol.schema import INT16, Request, array, message, request, wire

API_VERSIONS_KEY = 18


@message
class ApiVersionRange:
    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@message
class ApiVersionsResponse:
    error_code: int = wire(INT16)
    api_versions: list[ApiVersionRange] = wire(array(ApiVersionRange))


@request(key=API_VERSIONS_KEY, versions=(0, 0))
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Has no fields."""
