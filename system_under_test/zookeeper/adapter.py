"""ZooKeeper client for a real server, implemented with kazoo.

kazoo reads a connection in one thread, hands results to a second thread, and watch events to a third. So a result may
overtake a watch event that was read before it. This adapter uses only the first thread: its handler posts results,
watch events and state changes to the event loop in the order in which they were read. ``close`` joins that thread.

The adapter also corrects two flaws of kazoo: ``multi`` *returns* its exceptions, and the client forgets the negotiated
timeout.
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import PING_XID, WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, ZnodeStat

from assay.system_under_test.runtime import StateListener, Watch

Post = Callable[..., None]
"""``post(callback, *arguments)``, from any thread, runs the callback on the event loop, in the order of the posts."""

RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5, "max_jitter": 0.4}
"""With kazoo's default, a client waits up to a minute between attempts, and a session of seconds would expire."""

log = logging.getLogger(__name__)


class _InlineQueue:
    """Replaces the queue of kazoo's completion thread. Runs each call at once, in the calling thread."""

    def put(self, call: Callable[[], object]) -> None:
        call()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is not typed
    """Handler without worker threads: results complete in the connection's thread, events are posted to the loop."""

    def __init__(self, post: Post) -> None:
        super().__init__()
        self.completion_queue = _InlineQueue()
        self._post = post

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        self._post(callback.func, *callback.args)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo is not typed
    """Remembers the negotiated timeout, before any listener is called, and the latest answered request."""

    negotiated_timeout = 0.0
    """Seconds."""
    last_answered: tuple[int, float] = (0, 0.0)
    """The session of the latest answered request, and the loop time at which that request was sent."""

    def __init__(self, client: KazooClient, retry: Any, clock: Callable[[], float]) -> None:
        super().__init__(client, retry, logger=log)
        self._clock = clock
        self._pings: deque[float] = deque()
        """The times at which unanswered pings were sent."""
        self._requests: deque[float] = deque()
        """The times at which all other unanswered requests were sent."""

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        sent = self._clock()
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.negotiated_timeout = answer[0].time_out / 1000
            self.last_answered = answer[0].session_id, sent
            self._pings.clear()
            self._requests.clear()
        return answer

    def _submit(self, request: Any, timeout: float, xid: Any = None) -> None:
        if xid is not None:
            (self._pings if xid == PING_XID else self._requests).append(self._clock())
        super()._submit(request, timeout, xid)

    def _read_header(self, timeout: float) -> Any:
        found = super()._read_header(timeout)
        waiting = self._pings if found[0].xid == PING_XID else self._requests
        if found[0].xid != WATCH_XID and waiting:
            self.last_answered = self.last_answered[0], waiting.popleft()
        return found


class KazooZooKeeper:
    """Satisfies ``assay.system_under_test.runtime.ZooKeeper``. Created, used and closed on one event loop."""

    def __init__(self, servers: str, session_timeout: float) -> None:
        """``servers`` is ``host:port,host:port``; ``session_timeout`` is in seconds, to be negotiated."""
        self._servers = servers
        self._loop = asyncio.get_running_loop()
        self.session_id = 0
        self.session_timeout = session_timeout
        self._listeners: list[StateListener] = []
        self._connected = asyncio.Event()
        self._closed = False
        self._client = KazooClient(
            hosts=servers,
            timeout=session_timeout,
            handler=_Handler(self._post_callback),
            connection_retry=RECONNECT,
            logger=log,
        )
        self._connection = _Connection(self._client, self._client._conn_retry.copy(), self._loop.time)
        self._client._connection = self._connection
        self._client.add_listener(self._on_state_change)

    @property
    def alive_until(self) -> float:
        session, sent = self._connection.last_answered
        return sent + self.session_timeout if session and session == self.session_id else 0.0

    def add_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    async def connect(self, timeout: float) -> None:
        if self._closed:
            raise ConnectionError(f"this client of {self._servers} was closed; make a new one")
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout):  # not wait_for, which can lose a cancellation (Python 3.11)
                await self._connected.wait()
        except TimeoutError:
            await self.close()
            raise ConnectionError(f"no ZooKeeper session with {self._servers} within {timeout} s") from None

    async def close(self) -> None:
        """Ends the session if a server can be reached; otherwise the session expires. No callback runs afterwards."""
        if not self._closed:
            self._closed = True
            self.session_id = 0
            await asyncio.to_thread(self._stop_client)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        answer: tuple[bytes, ZnodeStat] = await self._await_result(self._client.get_async(path, watch))
        return answer

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        return await self._await_result(self._client.exists_async(path, watch))

    async def get_children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(await self._await_result(self._client.get_children_async(path, watch)))

    async def create(
        self, path: str, value: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, makepath: bool = False
    ) -> str:
        request = self._client.create_async(path, value, ephemeral=ephemeral, sequence=sequence, makepath=makepath)
        created: str = await self._await_result(request)
        return created

    async def set(self, path: str, value: bytes, version: int = -1) -> ZnodeStat:
        return await self._await_result(self._client.set_async(path, value, version))

    async def delete(self, path: str, version: int = -1) -> None:
        await self._await_result(self._client.delete_async(path, version))

    async def multi(self, operations: Sequence[Any]) -> list[Any]:
        transaction = self._client.transaction()
        transaction.operations = list(operations)
        results = await self._await_result(transaction.commit_async())
        failures = [result for result in results if isinstance(result, Exception)]
        for failure in failures:
            if not isinstance(failure, RolledBackError | RuntimeInconsistency):  # another operation's error
                raise failure
        if failures:
            raise failures[0]
        return [None if result is True else result for result in results]

    async def sync(self, path: str) -> None:
        await self._await_result(self._client.sync_async(path))

    # From kazoo's thread to the event loop

    async def _await_result(self, pending: Any) -> Any:
        future = self._loop.create_future()
        pending.rawlink(functools.partial(self._post, _resolve, future))
        return await future

    def _post(self, callback: Callable[..., object], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop was closed without closing this client: no caller is left
            log.warning("%s: the event loop is closed; dropped %r", self._servers, callback)

    def _post_callback(self, callback: Callable[..., object], *arguments: Any) -> None:
        # In the next turn of the loop, because a coroutine that awaits a result also runs one turn after the result.
        self._post(self._loop.call_soon, self._call_unless_closed, callback, *arguments)

    def _call_unless_closed(self, callback: Callable[..., object], *arguments: Any) -> None:
        if not self._closed:
            callback(*arguments)

    def _on_state_change(self, state: str) -> None:
        """Runs in kazoo's thread: posts the session and timeout as of this moment with the state."""
        identity = self._client.client_id
        session = identity[0] if state == KazooState.CONNECTED and identity is not None else None
        self._post_callback(self._apply_state, state, session, self._connection.negotiated_timeout)

    def _apply_state(self, state: str, session: int | None, negotiated: float) -> None:
        if state == KazooState.CONNECTED and session is not None:
            self.session_id = session
            self.session_timeout = negotiated
            self._connected.set()
        elif state == KazooState.LOST:
            self.session_id = 0
        for listener in list(self._listeners):
            listener(state)

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()


def _resolve(future: asyncio.Future[Any], done: Any) -> None:
    if future.done():
        return
    if done.exception is not None:
        future.set_exception(done.exception)
    else:
        future.set_result(done.value)
