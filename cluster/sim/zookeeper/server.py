"""A simulated ZooKeeper server: a process of a node of role ``zookeeper``, listening on port 2181.

It answers a connection's requests in order. It sends the watch events of a write before the answer to any later
request. Without a quorum it closes every connection.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import BadArgumentsError, ZookeeperError

from assay.cluster.sim.host import SimHost
from assay.cluster.sim.process import PROCESS
from assay.cluster.sim.zookeeper import wire
from assay.cluster.sim.zookeeper.ensemble import Ensemble, ZooKeeperSession
from assay.cluster.sim.zookeeper.tree import Change, CheckVersion, Create, Delete, SetData, TransactionError, check_path
from assay.cluster.system import ZOOKEEPER_PORT

CHECK_INTERVAL = 0.1
RUOK, SRVR, CONS, DUMP = b"ruok", b"srvr", b"cons", b"dump"


async def serve(ensemble: Ensemble) -> int:
    """Runs as the main coroutine of the server's process. It ends only when the process is killed."""
    process = PROCESS.get()
    if process is None:
        raise RuntimeError("a simulated ZooKeeper server runs as a process of a node")
    ensemble.register_server(process)
    server = _Server(ensemble, process.host)
    await asyncio.start_server(server.accept, "0.0.0.0", ZOOKEEPER_PORT)
    while True:
        server.enforce_quorum()
        await asyncio.sleep(CHECK_INTERVAL)


class _Server:
    def __init__(self, ensemble: Ensemble, host: SimHost) -> None:
        self.ensemble = ensemble
        self.host = host
        self.connections: dict[_Connection, None] = {}

    @property
    def serving(self) -> bool:
        return self.ensemble.is_serving(self.host)

    def enforce_quorum(self) -> None:
        """Expires overdue sessions if there is a quorum, else closes all connections."""
        if self.serving:
            self.ensemble.expire_sessions()
        else:
            for connection in list(self.connections):
                connection.drop()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, writer)
        self.connections[connection] = None
        try:
            head = await reader.readexactly(4)
            if head in (RUOK, SRVR, CONS, DUMP):
                writer.write(self._four_letters(head))
            else:
                await connection.run(reader, head)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client is gone; its session lives until it expires
        finally:
            self.connections.pop(connection, None)
            self.ensemble.forget(connection)
            writer.close()

    def _four_letters(self, word: bytes) -> bytes:
        if word == RUOK:
            return b"imok"
        if not self.serving:
            return b"This ZooKeeper instance is not currently serving requests\n"
        if word == CONS:
            return "".join(connection.describe() for connection in self.connections).encode()
        if word == DUMP:
            known = "".join(f"\t{session:#x}\n" for session in self.ensemble.sessions)
            return f"SessionTracker dump:\n{known}Connections dump:\n".encode()
        mode = "standalone" if self.ensemble.standalone else "follower"
        return f"Zookeeper version: simulated\nMode: {mode}\n".encode()


class _Connection:
    """A client's connection: its session and its requests."""

    def __init__(self, server: _Server, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._ensemble = server.ensemble
        self._writer = writer
        self.session: ZooKeeperSession | None = None
        self._verbs: dict[str, Callable[..., Any]] = {
            "get": self._get,
            "exists": self._exists,
            "children": self._children,
            "multi": self._multi,
            "sync": self._sync,
        }

    def describe(self) -> str:
        """Returns the line of ``cons`` for this connection."""
        address, port = self._writer.get_extra_info("peername")
        session = self.session
        if session is None:
            return f" /{address}:{port}[0](queued=0)\n"
        return f" /{address}:{port}[1](queued=0,sid={session.identifier:#x},to={round(session.timeout * 1000)})\n"

    def notify(self, kind: str, path: str) -> None:
        self._writer.write(wire.pack([wire.WATCH, kind, path]))

    def drop(self) -> None:
        self._writer.close()

    async def run(self, reader: asyncio.StreamReader, head: bytes) -> None:
        session = self.session = self._handshake(await wire.receive(reader, head))
        while session is not None:
            request = await wire.receive(reader)
            if not self._server.serving or not self._ensemble.is_alive(session):
                return
            # The session has moved to another connection. A real server rejects late requests on this one, too.
            if session.connection is not self:
                return
            self._ensemble.renew_session(session)
            if not self._answer(session, request):
                return
            await self._writer.drain()

    def _handshake(self, hello: Any) -> ZooKeeperSession | None:
        identifier, timeout = hello
        if not self._server.serving:
            return None
        session: ZooKeeperSession | None
        if identifier:
            session = self._ensemble.resume_session(identifier, self)
        else:
            session = self._ensemble.open_session(timeout / 1000, self)
        answer = [0, 0] if session is None else [session.identifier, round(session.timeout * 1000)]
        self._writer.write(wire.pack(answer))
        return session

    def _answer(self, session: ZooKeeperSession, request: list[Any]) -> bool:
        """Returns False after the last request of the session."""
        xid, verb, *arguments = request
        result: Any = None
        code = 0
        if verb == "close":
            session.connection = None  # keeps the connection open for the answer
            self._ensemble.end_session(session.identifier)
        elif verb != "ping":
            try:
                result = self._verbs[verb](session, *arguments)
            except ZookeeperError as error:
                code, result = error.code, str(error)
        self._writer.write(wire.pack([xid, code, result]))
        return bool(verb != "close")

    def _get(self, _: ZooKeeperSession, path: str, watch: bool) -> Any:
        check_path(path)
        data, stat = self._ensemble.tree.get(path)
        if watch:
            self._ensemble.watch_data(path, self)
        return data, tuple(stat)

    def _exists(self, _: ZooKeeperSession, path: str, watch: bool) -> Any:
        check_path(path)
        stat = self._ensemble.tree.exists(path)
        if watch:
            self._ensemble.watch_data(path, self)
        return None if stat is None else tuple(stat)

    def _children(self, _: ZooKeeperSession, path: str, watch: bool) -> list[str]:
        check_path(path)
        names = self._ensemble.tree.children(path)
        if watch:
            self._ensemble.watch_children(path, self)
        return names

    def _sync(self, _: ZooKeeperSession, path: str) -> None:
        check_path(path)

    def _multi(self, session: ZooKeeperSession, operations: list[list[Any]]) -> list[Any]:
        """Runs a transaction. Single writes are transactions of one change."""
        changes = [_to_change(session, *operation) for operation in operations]
        try:
            results = self._ensemble.write(changes)
        except TransactionError as failure:
            raise failure.error from failure
        return [tuple(result) if isinstance(result, tuple) else result for result in results]


def _to_change(session: ZooKeeperSession, verb: str, path: str, *arguments: Any) -> Change:
    match verb, arguments:
        case "create", (data, ephemeral, sequence):
            return Create(path, data, session.identifier if ephemeral else 0, sequence)
        case "delete", (version,):
            return Delete(path, version)
        case "set", (data, version):
            return SetData(path, data, version)
        case "check", (version,):
            return CheckVersion(path, version)
    raise BadArgumentsError(f"{verb} {path} {arguments}")
