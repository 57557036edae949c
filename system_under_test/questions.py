"""One request to one broker over a connection of its own, for a tester."""

from typing import TypeVar

from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.schema import Request

R = TypeVar("R")


async def ask(
    host: str, port: int, request: Request[R], version: int, timeout: float, *, connect_timeout: float | None = None
) -> R:
    """The answer. Times in seconds; without ``connect_timeout`` that is ``timeout``, too. Raises ``CallError``."""
    connection = await Connection.open(host, port, timeout if connect_timeout is None else connect_timeout)
    try:
        return await connection.call(request, version, timeout)
    finally:
        await connection.close()
