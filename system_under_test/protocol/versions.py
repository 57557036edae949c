"""ApiVersions (key 18), KIP-35: what this broker speaks."""

from __future__ import annotations

from assay.system_under_test.protocol.schema import Int16, Request, message, request

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
