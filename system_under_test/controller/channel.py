"""The controller's line to one life of one broker: requests go out one at a time, in order, until they are answered.

Every request may be repeated, so a lost connection is simply tried again; the line is closed when the broker's
registration goes or changes, or the controller resigns.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from assay.system_under_test.controller.leaders import LiveBroker
from assay.system_under_test.network.connection import CallError, Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.schema import Request

_log = logging.getLogger("assay.controller")

BACK_OFF = 0.1
"""Seconds."""


class Channel:
    """``rejected`` is called when the broker knows a newer controller, or is not in the life that was meant."""

    def __init__(self, broker: LiveBroker, request_timeout: float, rejected: Callable[[], None]) -> None:
        self.broker = broker
        self._request_timeout = request_timeout
        self._rejected = rejected
        self._queue: deque[tuple[Request[Any], asyncio.Future[Any]]] = deque()
        self._filled = asyncio.Event()

    def send(self, request: Request[Any]) -> asyncio.Future[Any]:
        """The answer to come; cancelled when the line is closed first."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append((request, future))
        self._filled.set()
        return future

    async def run(self) -> None:
        """Ends only when it is cancelled."""
        connection: Connection | None = None
        try:
            while True:
                if not self._queue:
                    self._filled.clear()
                    await self._filled.wait()
                request, future = self._queue[0]
                try:
                    if connection is None:
                        connection = await Connection.open(self.broker.host, self.broker.port, self._request_timeout)
                    response = await connection.call(request, 0, self._request_timeout)
                except CallError as error:
                    _log.info("%s to broker %d: %s", type(request).__name__, self.broker.broker_id, error)
                    if connection is not None:
                        await connection.close()
                        connection = None
                    await asyncio.sleep(BACK_OFF)
                    continue
                if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                    self._rejected()
                    await asyncio.sleep(BACK_OFF)
                    continue
                self._queue.popleft()
                if not future.done():
                    future.set_result(response)
        finally:
            for _, future in self._queue:
                future.cancel()
            if connection is not None:
                await connection.close()
