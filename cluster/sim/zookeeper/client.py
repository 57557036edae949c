"""The ZooKeeper client of the simulation. It has the methods of ``assay.system_under_test.runtime.ZooKeeper``.

It uses asyncio streams, so partitions, kills and stops affect it like any other connection. A task keeps the session:

1. It connects to one server after the other.
2. It reads answers and events.
3. It gives up a connection that was silent for two thirds of the session timeout.

All notifications (results, watches, states) go through ``loop.call_soon`` in the order in which they were read. The
interface promises this order. As in kazoo, requests in flight on a broken connection end in ``ConnectionLoss``, and
later requests wait. After ``close`` no callback runs.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat

from assay.cluster.sim.zookeeper import wire

Watch = Callable[[WatchedEvent], None]
StateListener = Callable[[str], None]
WatchTable = dict[str, dict[Watch, None]]

EPHEMERAL, SEQUENCE = 1, 2
"""Flags of kazoo's ``Create``."""
FIRST_BACKOFF, LAST_BACKOFF = 0.05, 0.5
"""Back-off in seconds between attempts to connect: first and maximum, doubled each time, with jitter."""
CLOSE_TIMEOUT = 1.0
"""Seconds to wait for the answer to a close. Without an answer the session expires."""


@dataclass(slots=True)
class _Request:
    xid: int
    frame: bytes
    future: asyncio.Future[Any]
    on_answer: Callable[[int], None] | None
    sent: float = 0.0


class SimZooKeeper:
    """A client of simulated ZooKeeper servers.

    ``servers`` is ``host:port,host:port``. ``session_timeout``: the requested timeout in seconds.
    """

    def __init__(self, servers: str, session_timeout: float, source: random.Random) -> None:
        self._servers = [_parse_address(server) for server in servers.split(",")]
        self._names = servers
        self._timeout = session_timeout
        self._random = source
        self._listeners: list[StateListener] = []
        self._announced_session = 0
        """Id of the session as of the last notification of the listeners; 0: none."""
        self._session = 0
        """Id of the session that the server granted; 0: none. The notification of the listeners follows."""
        self._xid = 0
        self._queue: deque[_Request] = deque()
        """Requests that wait for a connection."""
        self._flight: deque[_Request] = deque()
        """Requests that were sent and not answered."""
        self._data_watches: WatchTable = {}
        self._child_watches: WatchTable = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._last_received = 0.0
        self._last_sent = 0.0
        self._pings: deque[float] = deque()  # send times of unanswered pings
        self._last_answered = 0.0  # send time of the latest answered request or ping

    # The interface

    @property
    def session_id(self) -> int:
        return self._announced_session

    @property
    def session_timeout(self) -> float:
        return self._timeout

    @property
    def alive_until(self) -> float:
        """Loop time until which the session cannot expire; 0 without a session."""
        known = self._announced_session != 0 and self._announced_session == self._session
        return self._last_answered + self._timeout if known else 0.0

    def add_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    async def connect(self, timeout: float) -> None:
        if self._closed:
            raise ConnectionError(f"this client of {self._names} was closed; make a new one")
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_session(), name="zookeeper client")
        connected = asyncio.Event()

        def listen(state: str) -> None:
            if state == KazooState.CONNECTED:
                connected.set()

        self._listeners.append(listen)
        try:
            if not self._announced_session:
                async with asyncio.timeout(timeout):
                    await connected.wait()
        except TimeoutError:
            await self.close()
            raise ConnectionError(f"no ZooKeeper session with {self._names} within {timeout} s") from None
        finally:
            self._listeners.remove(listen)

    async def close(self) -> None:
        if self._closed:
            return
        if self._writer is not None:
            # Without an answer the session expires later.
            with contextlib.suppress(TimeoutError, exceptions.ConnectionLoss, exceptions.SessionExpiredError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._ask("close")
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._announced_session = 0
        self._fail_all(exceptions.ConnectionLoss("the client was closed"))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        data, stat = await self._read("get", path, watch, self._data_watches)
        return data, ZnodeStat(*stat)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        stat = await self._read("exists", path, watch, self._data_watches)
        return None if stat is None else ZnodeStat(*stat)

    async def get_children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._read("children", path, watch, self._child_watches)
        return names

    async def create(
        self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, makepath: bool = False
    ) -> str:
        operation = ["create", path, value, ephemeral, sequence]
        try:
            created: str = (await self._ask("multi", [operation]))[0]
        except exceptions.NoNodeError:
            if not makepath:
                raise
            await self._make_parents(path)
            created = (await self._ask("multi", [operation]))[0]
        return created

    async def set(self, path: str, value: bytes, version: int = -1) -> ZnodeStat:
        return ZnodeStat(*(await self._ask("multi", [["set", path, value, version]]))[0])

    async def delete(self, path: str, version: int = -1) -> None:
        await self._ask("multi", [["delete", path, version]])

    async def multi(self, operations: Sequence[Any]) -> list[Any]:
        results = await self._ask("multi", [_to_request(operation) for operation in operations])
        return [ZnodeStat(*result) if isinstance(result, list) else result for result in results]

    async def sync(self, path: str) -> None:
        await self._ask("sync", path)

    # Requests

    async def _make_parents(self, path: str) -> None:
        parts = path.split("/")[1:-1]
        for depth in range(1, len(parts) + 1):
            try:
                await self._ask("multi", [["create", "/" + "/".join(parts[:depth]), b"", False, False]])
            except exceptions.NodeExistsError:
                continue

    async def _read(self, verb: str, path: str, watch: Watch | None, table: WatchTable) -> Any:
        def register(code: int) -> None:
            if code == 0 and watch is not None:
                table.setdefault(path, {})[watch] = None

        return await self._ask(verb, path, watch is not None, on_answer=register)

    async def _ask(self, *request: Any, on_answer: Callable[[int], None] | None = None) -> Any:
        if self._closed:
            raise exceptions.ConnectionClosedError("the client was closed")
        if self._task is None:
            raise exceptions.ConnectionClosedError("the client was never connected")
        self._xid += 1
        future = asyncio.get_running_loop().create_future()
        pending = _Request(self._xid, wire.pack([self._xid, *request]), future, on_answer)
        if self._writer is None:
            self._queue.append(pending)
        else:
            self._send(self._writer, pending)
        return await future

    def _send(self, writer: asyncio.StreamWriter, request: _Request) -> None:
        self._flight.append(request)
        self._last_sent = request.sent = asyncio.get_running_loop().time()
        writer.write(request.frame)

    def _fail(self, requests: deque[_Request], error: Exception) -> None:
        while requests:
            future = requests.popleft().future
            if not future.done():
                _set_error(future, error)

    def _fail_all(self, error: Exception) -> None:
        self._fail(self._flight, error)
        self._fail(self._queue, error)

    # The session

    async def _keep_session(self) -> None:
        backoff = FIRST_BACKOFF
        order = list(self._servers)
        self._random.shuffle(order)
        turn = 0
        while True:
            address = order[turn % len(order)]
            turn += 1
            try:
                async with asyncio.timeout(self._timeout * 2 / 3 / len(order)):
                    reader, writer = await asyncio.open_connection(*address)
                    hello_sent = asyncio.get_running_loop().time()
                    try:
                        writer.write(wire.pack([self._session, round(self._timeout * 1000)]))
                        session, milliseconds = await wire.receive(reader)
                    except BaseException:
                        writer.transport.abort()
                        raise
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                await asyncio.sleep(backoff * (0.5 + self._random.random()))
                backoff = min(2 * backoff, LAST_BACKOFF)
                continue
            backoff = FIRST_BACKOFF
            if session == 0:
                writer.close()
                self._handle_expiry()
                continue
            self._handle_connection(writer, session, milliseconds / 1000, hello_sent)
            try:
                await self._read_all(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                self._handle_lost_connection()
            finally:
                self._writer = None
                writer.transport.abort()

    async def _read_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pinger = asyncio.get_running_loop().create_task(self._ping(writer), name="zookeeper ping")
        loop = asyncio.get_running_loop()
        try:
            while True:
                message = await wire.receive(reader)
                self._last_received = loop.time()
                self._dispatch(message)
        finally:
            pinger.cancel()

    async def _ping(self, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while not writer.is_closing():
            now = loop.time()
            if now - self._last_received > self._timeout * 2 / 3:
                writer.transport.abort()
                return
            if now - self._last_sent >= self._timeout / 3:
                self._last_sent = now
                self._pings.append(now)
                writer.write(wire.pack([wire.PING, "ping"]))
            silence = self._last_received + self._timeout * 2 / 3
            await asyncio.sleep(max(min(self._last_sent + self._timeout / 3, silence) - now, 0.001))

    def _handle_connection(self, writer: asyncio.StreamWriter, session: int, timeout: float, hello_sent: float) -> None:
        self._writer = writer
        self._last_answered = hello_sent
        self._pings.clear()
        self._session = session
        self._timeout = timeout
        self._last_received = asyncio.get_running_loop().time()
        self._notify_listeners(KazooState.CONNECTED, session)
        while self._queue:
            request = self._queue.popleft()
            if not request.future.done():
                self._send(writer, request)

    def _handle_lost_connection(self) -> None:
        self._writer = None
        self._fail(self._flight, exceptions.ConnectionLoss(f"connection of session {self._session:#x} lost"))
        self._notify_listeners(KazooState.SUSPENDED, self._session)
        tables = (self._child_watches, self._data_watches)
        lost = [watch for table in tables for watches in table.values() for watch in watches]
        self._data_watches, self._child_watches = {}, {}
        for watch in lost:
            self._call_soon(watch, WatchedEvent(EventType.NONE, KeeperState.CONNECTING, None))

    def _handle_expiry(self) -> None:
        expired, self._session = self._session, 0
        self._notify_listeners(KazooState.LOST, 0)
        self._fail_all(exceptions.SessionExpiredError(f"session {expired:#x} expired"))

    def _notify_listeners(self, state: str, session: int) -> None:
        """Notifies the listeners. The property ``session_id`` changes at the notification, not before."""
        self._call_soon(self._announce, state, session)

    def _announce(self, state: str, session: int) -> None:
        self._announced_session = session
        for listener in list(self._listeners):
            listener(state)

    def _call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        asyncio.get_running_loop().call_soon(self._unless_closed, callback, *arguments)

    def _unless_closed(self, callback: Callable[..., object], *arguments: Any) -> None:
        if not self._closed:
            callback(*arguments)

    def _dispatch(self, message: list[Any]) -> None:
        if message[0] == wire.WATCH:
            self._fire_watches(message[1], message[2])
            return
        if message[0] == wire.PING:
            self._last_answered = self._pings.popleft()
            return
        xid, code, result = message
        request = self._flight.popleft()
        if request.xid != xid:
            raise ConnectionError(f"answer to request {xid} where {request.xid} was due")
        self._last_answered = request.sent
        if request.on_answer is not None:
            request.on_answer(code)
        if request.future.done():
            return
        if code:
            _set_error(request.future, exceptions.EXCEPTIONS[code](result))
        else:
            request.future.set_result(result)

    def _fire_watches(self, kind: str, path: str) -> None:
        watches: dict[Watch, None] = {}
        if kind != EventType.CHILD:
            watches |= self._data_watches.pop(path, {})
        if kind in (EventType.CHILD, EventType.DELETED):
            watches |= self._child_watches.pop(path, {})
        for watch in watches:
            self._call_soon(watch, WatchedEvent(kind, KeeperState.CONNECTED, path))


def _set_error(future: asyncio.Future[Any], error: Exception) -> None:
    """Sets an error as the result. Marks it as retrieved, so that asyncio never reports it, such as after a kill."""
    future.set_exception(error)
    future.exception()


def _parse_address(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"ZooKeeper server {server!r} is not host:port")
    return host, int(port)


def _to_request(operation: Any) -> list[Any]:
    match operation:
        case Create(path=path, data=data, flags=flags):
            return ["create", path, data, bool(flags & EPHEMERAL), bool(flags & SEQUENCE)]
        case Delete(path=path, version=version):
            return ["delete", path, version]
        case SetData(path=path, data=data, version=version):
            return ["set", path, data, version]
        case CheckVersion(path=path, version=version):
            return ["check", path, version]
    raise TypeError(f"multi takes Create, Delete, SetData and CheckVersion of kazoo, not {operation!r}")
