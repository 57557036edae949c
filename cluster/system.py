"""Protocols that describe a system under test: how its processes start, when they are ready, and which node leads.

Your class inherits from :class:`System` and overrides what it needs. The broker's class in
``system_under_test/deployment.py`` has the same attributes but inherits nothing, because the broker must not import the
tester.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, Protocol, runtime_checkable

from assay.cluster.node import Cluster, Node, by_role, join_host_port
from assay.cluster.runtime import Runtime

ZOOKEEPER_ROLE = "zookeeper"
ZOOKEEPER_PORT = 2181
CLIENT_ROLE = "client"
"""Role of nodes on which only clients of the system run."""


class DeploymentError(Exception):
    """The system did not start or cannot be queried.

    The message names the node, the last observation and the remedy.
    """


class System(Protocol):
    """The system under test as the cluster, the trial and the nemesis see it.

    Methods with a body are defaults that a subclass inherits. The first methods have none: every system must define
    them.
    """

    @property
    def name(self) -> str: ...

    @property
    def roles(self) -> Sequence[str]:
        """The roles in the order in which they start. The cluster itself provides ``zookeeper``."""

    def port(self, role: str) -> int:
        """Returns the port on which a node of that role serves its clients."""

    def argv(self, node: Node) -> Sequence[str]:
        """Returns the command of a node's main process."""

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        """Returns the files that must exist before the node's process starts: absolute path to content."""

    async def ready(self, node: Node) -> bool:
        """Returns whether the node serves. The harness calls it until it returns True or the deadline has passed."""

    @property
    def defects(self) -> Sequence[str]:
        """Names of the built-in defects that ``--defect`` may switch on; needs ``with_defect(name)``."""
        return ()

    @property
    def source(self) -> Sequence[str]:
        """Folders of this machine's Python path. They are copied to real nodes, below ``/opt/assay``."""
        return ()

    def event_log(self, node: Node) -> str | None:
        """Returns the absolute path of the event log of a real process; None if it writes none."""
        return None

    def logs(self, node: Node) -> Sequence[str]:
        """Returns absolute paths of text logs worth keeping after a run."""
        return ()

    async def entry(self, runtime: Runtime, argv: Sequence[str]) -> int:
        """Runs the process as a coroutine, for the simulation; returns its exit code.

        ``argv`` is the result of ``argv()``. ``runtime`` provides the process's disk, clock and random source
        (``cluster/runtime.py``).
        """
        raise DeploymentError(f"{self.name} cannot be simulated: it has no entry; run it with --cluster=docker")

    async def set_up(self, cluster: Cluster) -> None:
        """Creates what the workload needs (topics, keys). Called once all nodes are ready."""
        return None

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        """Returns the present ``leader`` (of a key), group ``coordinator`` or ``controller``; None if unknown."""
        return None

    def keys(self) -> Sequence[str]:
        """Returns the keys of operations, which ``find`` takes for ``leader``: ``orders-0``, ``orders-1``, ..."""
        return ()


@dataclass(frozen=True)
class Software:
    """Software of a role's nodes: additions to the project's image (Python and a JRE) or to an image of the user.

    ``packages`` are packages of the image's distribution (Debian for the project's image). ``python`` has Python
    packages (``redis-server``, ``nats-py==2.9.0``). ``environment`` has variables of their processes. A Python package
    that has only a source distribution is first built into a wheel on this machine.
    """

    packages: Sequence[str] = ()
    python: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    """``name:tag`` of an image on this machine's engine or in a registry. The harness's own needs are added to it.

    An image without a shell runs unchanged, beside a container with these needs. It can have no more packages.
    """
    dockerfile: Path | None = None
    """Builds the image from this file, with its folder as the context. Not allowed with ``image``."""
    user: str | None = None
    """User of the processes: ``name``, ``name:group`` or numbers. Default: the image's ``USER``, else root."""


@runtime_checkable
class SupportsSoftware(Protocol):
    """A system that declares the software of its nodes."""

    def software(self, role: str) -> Software:
        """Returns the software of this role's nodes."""


@runtime_checkable
class SupportsClientSoftware(Protocol):
    """A system that declares the software of its client nodes."""

    @property
    def client_software(self) -> Software: ...


@dataclass(frozen=True)
class WorkerDescription:
    """The process that runs clients and network calls, in a container on the network of the nodes.

    - ``argv``: the command. It serves on its standard input and output.
    - ``source``: folders and modules of this machine's Python path that the process imports (see ``System.source``)
    """

    argv: Sequence[str]
    source: Sequence[str]
    software: Software


@runtime_checkable
class SupportsNetworkWorker(Protocol):
    """A system whose clients and network calls can run in a container on the network of its nodes."""

    def describe_worker(self) -> WorkerDescription:
        """Returns the process of that container. Raises ``DeploymentError`` if the clients cannot run there."""


@runtime_checkable
class SupportsClientRoles(Protocol):
    """A system whose clients only talk to some roles: to servers, for example, but not to their monitors."""

    @property
    def client_roles(self) -> Sequence[str]:
        """The roles whose nodes clients connect to."""


@runtime_checkable
class SupportsDefects(Protocol):
    """A system with built-in defects."""

    def with_defect(self, name: str) -> System:
        """Returns the same system with this defect switched on."""


class Defect(Protocol):
    """A built-in defect, as ``assay defects`` lists it.

    ``assay defects --verify`` and ``assay nights`` expect that a run catches it.
    """

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str:
        """A sentence about what goes wrong."""

    @property
    def fault(self) -> str:
        """The fault that reveals it."""

    @property
    def anomalies(self) -> Sequence[str]:
        """The defect counts as caught if at least one of these is reported."""

    @property
    def reference(self) -> str: ...
    @property
    def run(self) -> str:
        """Arguments for pytest, in addition to ``--defect``, for a run that catches it."""


@runtime_checkable
class SupportsDefectDescriptions(Protocol):
    """A system that describes its built-in defects."""

    @property
    def described_defects(self) -> Sequence[Defect]: ...


@runtime_checkable
class SupportsStandalone(Protocol):
    """A system that other programs can use: ``assay up`` starts it."""

    def standalone(self, partitions: int) -> System:
        """Returns the system without the workload's objects.

        ``partitions``: number of partitions of a topic that is created on first use.
        """


@runtime_checkable
class SupportsStrikePoints(Protocol):
    """A system that names logged events at which a fault is worth trying (``--nemesis-list`` lists them)."""

    @property
    def strike_points(self) -> Mapping[str, str]:
        """Maps each event's name to a text that says what has happened by then."""


@runtime_checkable
class SupportsZooKeeperClient(Protocol):
    """A system with its own ZooKeeper client. On real machines the runtime creates it for the system's clients."""

    @property
    def zookeeper_client(self) -> str:
        """``module:callable``, called with ``host:port,...`` and the session timeout in seconds."""


@runtime_checkable
class SupportsSettings(Protocol):
    """A system with settings that a run, or a search, may vary."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Settings and their values under which the contract holds. Searches and mixes draw from them.

        ``"1000..4000"`` is every whole number from 1000 to 4000.
        """

    def with_setting(self, name: str, value: str) -> System:
        """Returns the system with this setting. Raises ``ValueError`` that lists the settings and their values."""


@runtime_checkable
class SupportsCodePackages(Protocol):
    """A system that declares its own Python code. The default is the package that contains its class."""

    @property
    def code_packages(self) -> Sequence[str]:
        """Importable packages and modules whose covered lines and branches a search counts.

        Only code in the process of the simulation can be counted.
        """


@runtime_checkable
class SupportsStopSignal(Protocol):
    """A system that declares the signal that asks its processes to end. The default is SIGTERM."""

    def stop_signal(self, role: str) -> Signals:
        """Returns the signal for the main process of this role's nodes, such as ``signal.SIGINT``."""


@runtime_checkable
class SupportsRetention(Protocol):
    """A system whose logs have retention limits. The contract uses these limits."""

    @property
    def retention_ms(self) -> int:
        """Initial retention time of the workload's topics; -1: no limit."""

    @property
    def retention_bytes(self) -> int: ...


@runtime_checkable
class SupportsFailover(Protocol):
    """A system that declares how soon its servers fail over. The contract uses this time."""

    @property
    def failover(self) -> float:
        """Maximum seconds until a failover begins. Until then, a silent server is not considered failed."""


@runtime_checkable
class SupportsStrongerPromises(Protocol):
    """A system that promises more than its contracts with some of its settings."""

    @property
    def rules_out(self) -> Sequence[str]:
        """Anomalies that its current settings exclude, even if a contract tolerates them."""


@runtime_checkable
class SupportsTurningPoints(Protocol):
    """A system that declares which events of its event logs are turning points."""

    @property
    def turning_points(self) -> Sequence[str]:
        """Events that report a new leader, coordinator or controller, or another change of state.

        A search strikes there more often than elsewhere, because a handover easily drops state.
        """


StoredRecord = Mapping[str, Any]
"""A record of one replica on a node's disk, or the end of its log: a row of the history's data set ``replicas``.

The keys are columns. Columns that may be null can be left out; any other name is an error.
"""


@runtime_checkable
class SupportsReplicas(Protocol):
    """A system whose replicas can be read from its nodes' disks and compared."""

    async def replicas(self, cluster: Cluster) -> Iterable[StoredRecord]:
        """Returns all records of all replicas, once the replicas have rejoined or the time limit for it has passed.

        Called after the run, with every fault healed. Raises :class:`DeploymentError`, ``NodeError`` or
        ``OSError`` if a node's disk cannot be read. The result is iterated once and may be an iterator, so that long
        logs are not in memory as rows. The iteration must not raise.
        """


@runtime_checkable
class SupportsDataFolder(Protocol):
    """A system that declares its data folder. A real node needs it for power loss."""

    def data_folder(self, node: Node) -> str:
        """Returns the absolute path of the folder that becomes a separate disk. The event log must not be inside it.

        The folder exists at each start of a process, in every kind of cluster, and is empty at the first.
        """


@runtime_checkable
class SupportsLockFiles(Protocol):
    """A system whose processes lock files in its data folder, so that no second process uses it."""

    def lock_files(self, node: Node) -> Sequence[str]:
        """Returns absolute paths.

        No fault removes, restores or changes these files, because a lock belongs to a file and not to its name.
        """


@runtime_checkable
class SupportsSoleReplica(Protocol):
    """A system that knows which of its servers hold the only complete replica of a key.

    A fault that destroys a server's data calls :meth:`alone_with` first. Until that server serves again, other faults
    call it before they take a server away.
    """

    async def alone_with(self, cluster: Cluster, node: Node, away: Collection[Node]) -> str | None:
        """Returns a key whose acknowledged data are known to be complete on this server only; None if there is none.

        Servers in ``away``, which other faults keep from the cluster, do not count as holders.
        """


@runtime_checkable
class SupportsDataFiles(Protocol):
    """A system that declares its data files, for the faults that damage files."""

    def data_files(self, node: Node) -> Sequence[str]:
        """Returns absolute patterns of append-only files. The last file by name in each folder is being appended to."""

    async def durable_size(self, node: Node, path: str) -> int | None:
        """Returns the length in bytes of the file's prefix that the system considers durable by its own records.

        An unclean stop can damage bytes after this prefix, and the system must survive that. Damage inside the prefix
        is a fault of the disk, for which a contract may promise less. Called while the node's process is dead.

        None means that the prefix is unknown. Then the faults damage any byte of the file.
        """


@runtime_checkable
class SupportsGroups(Protocol):
    """A system whose clients form groups. ``find(cluster, "coordinator", group)`` returns a group's coordinator."""

    @property
    def groups(self) -> Sequence[str]:
        """Groups that the workload uses; empty if it uses none."""


@runtime_checkable
class SupportsClientSessions(Protocol):
    """A system whose clients, on their own nodes, hold ZooKeeper sessions themselves."""

    @property
    def client_sessions(self) -> bool: ...


@runtime_checkable
class SupportsHold(Protocol):
    """A system whose processes stop themselves on request (SIGSTOP) right after an event of their event log."""

    @property
    def start_events(self) -> Sequence[str]:
        """Events that every start of a process goes through."""

    def hold_file(self, node: Node) -> str:
        """Returns the absolute path of the file that a process reads at each event.

        Each line requests a stop: ``event``, or ``event key`` with a blank between. A missing or empty file means none.
        """


@runtime_checkable
class SupportsMove(Protocol):
    """A system whose replicas can be moved from node to node while it runs."""

    async def replicas_of(self, cluster: Cluster, key: str) -> Sequence[Node] | None:
        """Returns the nodes with the key's replicas; None while they move, or if the system does not know."""

    async def move(self, cluster: Cluster, key: str, nodes: Sequence[Node]) -> str | None:
        """Requests a move of the replicas to these nodes. Returns None if accepted, else why not (it is retried)."""

    def moved(self, line: Mapping[str, Any]) -> tuple[str, Sequence[int]] | None:
        """Returns the key and the indexes of the nodes with its replicas, if this line of an event log ends a move.

        Returns None for every other line, and always if event logs do not report moves. If clients move replicas too,
        a finished move may be reverted at once. Then only this line shows that the move ended.
        """


NodeCounts = Mapping[str, int | Sequence[int]]
"""Maps each role to its number of nodes, or to the allowed numbers with the default first."""


@runtime_checkable
class SupportsNodeCounts(Protocol):
    """A system that declares the node counts of its roles. A system with a single node then needs no ``--nodes``."""

    @property
    def node_counts(self) -> NodeCounts:
        """Allowed node counts. A role that is left out can have any number."""


@runtime_checkable
class SupportsHandover(Protocol):
    """A system whose processes hand over their leadership before they end, and log that they did."""

    def handed_over(self, line: Mapping[str, Any]) -> tuple[int, Mapping[str, str]] | None:
        """Returns how many keys a process led when it was asked to end, and the keys it still leads with the reasons.

        Returns None for every other line of the event log.
        """


class MembershipState(Protocol):
    """The servers that are members of the cluster, and which servers hold each key. Servers are given by index."""

    @property
    def members(self) -> Collection[int]: ...
    @property
    def replicas(self) -> Mapping[str, Sequence[int]]:
        """Replicas of every key that is not being moved, including the system's internal keys."""

    @property
    def moving(self) -> Mapping[str, Collection[int]]:
        """For each key that is being moved: all servers that hold, receive or give up a replica."""


@runtime_checkable
class SupportsMembership(Protocol):
    """A system whose servers can join and leave while it runs."""

    async def standing(self, cluster: Cluster) -> MembershipState | None:
        """Returns the membership as the system reports it now; None if it does not answer."""


SeenAtRest = Mapping[str, Any]
"""An observation of a system, at rest or at an instant: a row of the history's data set ``looks``, column to value.

``what`` names the observed object. ``zxid`` distinguishes two incarnations of it. The harness adds the columns ``look``
(number of the read), ``time`` and ``ended`` (begin and end of the read).
"""


@runtime_checkable
class SupportsSnapshots(Protocol):
    """A system whose state can be read at rest, to check that all work that was begun has been finished."""

    async def look(self, cluster: Cluster, runtime: Any) -> Sequence[SeenAtRest]:
        """Returns the complete state, or raises ``OSError``. ``runtime`` is a client's runtime."""
        ...

    def unsettled(self, seen: Sequence[SeenAtRest], wall_ms: int) -> int:
        """Returns how many of the rows describe unfinished work. The harness stops reading once it is 0.

        ``wall_ms``: milliseconds since 1970.
        """
        ...


class Inspector(Protocol):
    """Reads the servers' state at this very instant, without requests to them."""

    def acknowledged(self, key: str, position: int) -> Sequence[SeenAtRest]:
        """Returns the rows that contradict an acknowledgement. A client just received it for all offsets of a key up to
        this one.
        """

    def looked_at(self) -> Sequence[SeenAtRest]:
        """Returns rows that say how much was examined, so that "nothing found" can be told apart from "nothing
        examined".
        """


@runtime_checkable
class SupportsInspection(Protocol):
    """A system whose servers can be inspected at an instant."""

    def inspector(self, cluster: Cluster) -> Inspector | None:
        """Returns None if the cluster's nodes cannot be inspected at an instant. Only simulated nodes can."""


class Invariants(Protocol):
    """Checks the system's invariants at each event, on everything that is visible at that instant."""

    def event(self, node: str, line: str) -> Sequence[SeenAtRest]:
        """Returns the invariants violated now that ``node`` has written ``line`` into its event log.

        Each row has the name of the ``invariant``, a sentence (``claim``) and its subject. The method may neither
        change nor await anything.
        """

    def acknowledged(self, key: str, position: int, found: Sequence[SeenAtRest]) -> Sequence[SeenAtRest]:
        """Returns the invariants violated now that a client has received an acknowledgement for all offsets of a key
        up to this one.

        ``found``: the rows of the system's :class:`Inspector`.
        """

    def asserted(self) -> Mapping[str, int]:
        """Returns how often each invariant was checked, by name."""


@runtime_checkable
class SupportsInvariants(Protocol):
    """A system that declares what must hold at every instant."""

    def invariants(self, cluster: Cluster) -> Invariants | None:
        """Returns the invariants of one run; None outside the simulation, because only there state is visible at an
        instant.
        """


def zookeeper_servers(cluster: Cluster) -> str:
    """Returns ``address:port,...`` of every ZooKeeper node, in the form that a client takes."""
    return ",".join(join_host_port(node.address, ZOOKEEPER_PORT) for node in by_role(cluster, ZOOKEEPER_ROLE))
