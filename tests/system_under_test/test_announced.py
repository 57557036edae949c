"""Tests that what ApiVersions announces is answered.

Each key in each version, by each broker, in the form of that version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.api import APIS, ApiVersionsRequest
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import (
    Array,
    Blob,
    Fixed,
    RecordsType,
    Text,
    WireType,
    is_message,
    read_table,
)

from helpers.sim_brokers import brokers, simulate


def smallest(cls: type[Any], count: int) -> Any:
    """A valid message of zeros and short names, with ``count`` elements in each list of messages."""
    return cls(**{row.name: value(row.type, row.name, count) for row in read_table(cls)})


def value(type_: WireType, name: str, count: int) -> Any:
    match type_:
        case Fixed():
            return 1 if name == "acks" else 0  # with acks 0 there would be no answer
        case Text():
            return "some"
        case Blob() | RecordsType():
            return b""
        case Array(element=element):
            return [value(element, name, count)] * count
        case _:
            return smallest(type_, count)


def codes(message: Any) -> Iterator[int]:
    """Every error code in a response."""
    if is_message(type(message)):
        for field in dataclasses.fields(message):
            found = getattr(message, field.name)
            if field.name == "error_code":
                yield found
            yield from codes(found)
    elif isinstance(message, list):
        for element in message:
            yield from codes(element)


def test_every_announced_version_of_every_request_gets_its_answer() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            for node in cluster.nodes:
                connection = await Connection.open(node.address, 9092, 1.0)
                announced = (await connection.call(ApiVersionsRequest(), 0, 5.0)).api_versions
                asked = 0
                for one in announced:
                    for version in range(one.min_version, one.max_version + 1):
                        for count in (0, 1):
                            request = smallest(APIS[one.api_key].request, count)
                            # decodes the answer, to its last byte, in this version, on a connection that stays open
                            answer = await connection.call(request, version, 5.0)
                            said = list(codes(answer))
                            assert all(ErrorCode.of(code) == code != ErrorCode.UNKNOWN for code in said), (one, said)
                            asked += 1
                assert asked == 2 * 37
                await connection.close()
            await cluster.producer.send("orders", 0, [(None, b"x")])

    simulate(check)
