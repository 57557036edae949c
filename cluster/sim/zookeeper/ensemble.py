"""State shared by the ZooKeeper servers of one simulated cluster: the tree, the sessions, the watches, the quorum.

There is one replicated tree. A server serves it only while it can reach a majority of the ensemble (itself included).
That depends on the network's rules and the states of the processes. Every message of a client keeps its session alive.
A session expires if its client is silent for the session timeout.

A new leader grants every session a full timeout. So deadlines restart after the ensemble had no quorum, and when a
single server starts. A single server that was only stopped grants nothing: after the resume it finds sessions overdue,
like a real server.

Not modelled: reads from a lagging follower, the pause of an election while a majority stays up, the transaction log's
disk, ACLs, quotas, and containers. Every server reads the latest tree, so ``sync`` is only a round trip.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kazoo.protocol.states import EventType

from assay.cluster.sim.host import SimHost
from assay.cluster.sim.network import Network
from assay.cluster.sim.process import Process
from assay.cluster.sim.zookeeper.tree import Change, Create, Delete, Event, Tree

TICK = 0.5
"""Seconds of a tick: ``tickTime`` of test clusters. Session timeouts are between 2 and 20 ticks."""
QUORUM_GAP = 0.4
"""Seconds without a serving server after which the quorum counts as lost. Serving servers report every 0.1 s."""
FIRST_SESSION = 0x0100_0000_0000_0000


class ClientConnection(Protocol):
    """A client's connection, as the ensemble sees it."""

    def notify(self, kind: str, path: str) -> None: ...

    def drop(self) -> None: ...


@dataclass
class ZooKeeperSession:
    identifier: int
    timeout: float
    deadline: float
    connection: ClientConnection | None
    ephemerals: dict[str, None]


class Ensemble:
    """State shared by all servers. It survives the end of their processes, like the servers' disks."""

    def __init__(self, network: Network, hosts: Sequence[SimHost], wall_clock: Callable[[], float]) -> None:
        self.tree = Tree()
        self._network = network
        self._hosts = tuple(hosts)
        self._wall_clock = wall_clock
        self._processes: dict[SimHost, Process] = {}
        self._sessions: dict[int, ZooKeeperSession] = {}
        self._next_session = FIRST_SESSION
        self._data_watches: dict[str, dict[ClientConnection, None]] = {}
        self._child_watches: dict[str, dict[ClientConnection, None]] = {}
        self._last_check = 0.0

    @property
    def standalone(self) -> bool:
        return len(self._hosts) == 1

    # Quorum

    def register_server(self, process: Process) -> None:
        """Registers a server's new process."""
        self._processes[process.host] = process
        if self.standalone:
            self._renew_all()

    def is_serving(self, host: SimHost) -> bool:
        """Returns whether the server on that host may answer: it is connected to a majority in both directions."""
        reachable = 0
        for other in self._hosts:
            process = self._processes.get(other)
            if process is None or not process.running:
                continue
            if other is host or not (self._network.is_cut(host, other) or self._network.is_cut(other, host)):
                reachable += 1
        return 2 * reachable > len(self._hosts)

    def expire_sessions(self) -> None:
        """Ends overdue sessions. Each serving server calls it every 0.1 s."""
        now = self._network.loop.time()
        if not self.standalone and now - self._last_check > QUORUM_GAP:
            self._renew_all()
        self._last_check = now
        for session in [session for session in self._sessions.values() if session.deadline < now]:
            self.end_session(session.identifier)

    def _renew_all(self) -> None:
        now = self._network.loop.time()
        for session in self._sessions.values():
            session.deadline = now + session.timeout

    # Sessions

    @property
    def sessions(self) -> Sequence[int]:
        """Ids of the sessions that have not ended."""
        return tuple(self._sessions)

    def open_session(self, timeout: float, connection: ClientConnection) -> ZooKeeperSession:
        """Opens a session. ``timeout``: the requested timeout in seconds. It is granted within ZooKeeper's limits."""
        timeout = min(max(timeout, 2 * TICK), 20 * TICK)
        identifier = self._next_session
        self._next_session += 1
        session = ZooKeeperSession(identifier, timeout, self._network.loop.time() + timeout, connection, {})
        self._sessions[identifier] = session
        return session

    def resume_session(self, identifier: int, connection: ClientConnection) -> ZooKeeperSession | None:
        """Moves the session to this connection. Returns None if it has expired."""
        session = self._sessions.get(identifier)
        if session is None:
            return None
        if session.connection is not None and session.connection is not connection:
            session.connection.drop()
        session.connection = connection
        self.renew_session(session)
        return session

    def renew_session(self, session: ZooKeeperSession) -> None:
        session.deadline = self._network.loop.time() + session.timeout

    def is_alive(self, session: ZooKeeperSession) -> bool:
        return session.identifier in self._sessions

    def end_session(self, identifier: int) -> None:
        """Ends a session that expired or was closed. A transaction removes its ephemeral znodes."""
        session = self._sessions.pop(identifier, None)
        if session is None:
            return
        deletions = [Delete(path) for path in sorted(session.ephemerals)]
        self.write(deletions)
        if session.connection is not None:
            session.connection.drop()

    # Data

    def write(self, changes: Sequence[Change]) -> list[Any]:
        """Commits the changes and fires the watches, in this order. Raises ``TransactionError``."""
        results, events = self.tree.transact(changes, int(self._wall_clock() * 1000))
        for change, result in zip(changes, results, strict=True):
            self._track_ephemerals(change, result)
        for event in events:
            self._fire(event)
        return results

    def _track_ephemerals(self, change: Change, result: Any) -> None:
        if isinstance(change, Create) and change.owner:
            self._sessions[change.owner].ephemerals[result] = None
        elif isinstance(change, Delete):
            for session in self._sessions.values():
                session.ephemerals.pop(change.path, None)

    # Watches

    def watch_data(self, path: str, connection: ClientConnection) -> None:
        self._data_watches.setdefault(path, {})[connection] = None

    def watch_children(self, path: str, connection: ClientConnection) -> None:
        self._child_watches.setdefault(path, {})[connection] = None

    def forget(self, connection: ClientConnection) -> None:
        """Removes the watches of a connection that ended."""
        for table in (self._data_watches, self._child_watches):
            for path in [path for path, watchers in table.items() if connection in watchers]:
                del table[path][connection]
                if not table[path]:
                    del table[path]

    def _fire(self, event: Event) -> None:
        kind, path = event
        watchers: dict[ClientConnection, None] = {}
        if kind != EventType.CHILD:
            watchers |= self._data_watches.pop(path, {})
        if kind in (EventType.CHILD, EventType.DELETED):
            watchers |= self._child_watches.pop(path, {})
        for connection in watchers:
            connection.notify(kind, path)
