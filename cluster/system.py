"""What a user writes down about the system they test: how its processes start, are found ready, and who leads.

Your class inherits from :class:`System` and overrides what it needs. (The broker's, in
``system_under_test/deployment.py``, only has the same attributes: the broker imports nothing of the tester.)
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any, Protocol, runtime_checkable

from assay.cluster.addresses import at
from assay.cluster.node import Cluster, Node, by_role
from assay.cluster.runtime import Runtime

ZOOKEEPER_ROLE = "zookeeper"
ZOOKEEPER_PORT = 2181
CLIENT_ROLE = "client"
"""Of nodes on which nothing of the system runs, but clients of it."""


class DeploymentError(Exception):
    """The system did not come up or cannot be asked; the message names the node, the last thing seen, the remedy."""


class System(Protocol):
    """The system under test as the cluster, the trial and the nemesis see it.

    What has a body here is what a class gets that inherits from it and says nothing else. The first part every system
    must say for itself.
    """

    @property
    def name(self) -> str: ...

    @property
    def roles(self) -> Sequence[str]:
        """In the order in which they start. ``zookeeper`` is provided by the cluster itself."""

    def port(self, role: str) -> int:
        """Where a node of that role serves its clients."""

    def argv(self, node: Node) -> Sequence[str]:
        """The command of a node's main process."""

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        """What must be on the node before its process starts; absolute path to content."""

    async def ready(self, node: Node) -> bool:
        """Does it serve? Asked again and again until it does or the deadline is over."""

    @property
    def defects(self) -> Sequence[str]:
        """Names of the built-in defects that ``--defect`` may switch on; needs ``with_defect(name)``."""
        return ()

    @property
    def source(self) -> Sequence[str]:
        """Folders of this Python path that are copied to real nodes, below ``/opt/assay``."""
        return ()

    def event_log(self, node: Node) -> str | None:
        """Absolute path of the file into which a real process writes its event log; None for one that writes none."""
        return None

    def logs(self, node: Node) -> Sequence[str]:
        """Absolute paths of text logs worth keeping after a run."""
        return ()

    async def entry(self, runtime: Runtime, argv: Sequence[str]) -> int:
        """The process itself as a coroutine, for the simulation; returns its exit code.

        ``argv`` is what ``argv()`` returned, ``runtime`` its disk, clock and chance (``cluster/runtime.py``).
        """
        raise DeploymentError(f"{self.name} cannot be simulated: it has no entry; run it with --cluster=docker")

    async def set_up(self, cluster: Cluster) -> None:
        """Once all nodes are ready: creates what the workload needs (topics, keys)."""
        return None

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        """Who is ``leader`` (of a key), ``coordinator`` (of a group) or ``controller`` now; None: none is known."""
        return None

    def keys(self) -> Sequence[str]:
        """The keys that ``find`` takes for ``leader`` and that operations carry: ``orders-0``, ``orders-1``, ..."""
        return ()


@dataclass(frozen=True)
class Software:
    """What a role's nodes have: of an image of ours with Python and a JRE, or of one of the user's.

    ``packages`` are names of the image's distribution (Debian, if it is ours), ``python`` those of Python's
    (``redis-server``, ``nats-py==2.9.0``); ``environment`` has variables of their processes. A package of Python that
    has only a source distribution is built into a wheel on this machine first.
    """

    packages: Sequence[str] = ()
    python: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    """``name:tag`` of an image that is on this machine's engine, or in a registry; what the harness needs is added."""
    dockerfile: Path | None = None
    """The same for one that is built first; the folder that the file is in is the context. Not with ``image``."""
    user: str | None = None
    """Whom the processes run as: ``name``, ``name:group`` or numbers. Without: the image's ``USER``, else root."""


@runtime_checkable
class SupportsSoftware(Protocol):
    """A system that says what its nodes need."""

    def software(self, role: str) -> Software:
        """Of the nodes of this role."""


@runtime_checkable
class SupportsClientSoftware(Protocol):
    """A system with nodes for its clients, and that says what those need."""

    @property
    def client_software(self) -> Software: ...


@runtime_checkable
class SupportsClientRoles(Protocol):
    """A system whose clients do not talk to nodes of every role: to a server, but not to what watches over it."""

    @property
    def client_roles(self) -> Sequence[str]:
        """The roles whose nodes clients belong to."""


@runtime_checkable
class SupportsDefects(Protocol):
    """A system with built-in defects."""

    def with_defect(self, name: str) -> System:
        """The same system with this defect switched on."""


class Defect(Protocol):
    """One built-in defect, as ``assay defects`` lists it; its ``--verify``, and ``assay nights``, want it caught."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str:
        """What goes wrong."""

    @property
    def fault(self) -> str:
        """What shows it."""

    @property
    def anomalies(self) -> Sequence[str]:
        """Of these one must be reported, or it was not caught."""

    @property
    def reference(self) -> str: ...
    @property
    def run(self) -> str:
        """What to give to pytest, in addition to ``--defect``, for a run that catches it."""


@runtime_checkable
class SupportsDefectDescriptions(Protocol):
    """A system that describes its built-in defects."""

    @property
    def described_defects(self) -> Sequence[Defect]: ...


@runtime_checkable
class SupportsStandalone(Protocol):
    """A system that other programs can use: ``assay up`` starts it."""

    def standalone(self, partitions: int) -> System:
        """The same with nothing of a workload on it; ``partitions``: of a topic that is first asked for."""


@runtime_checkable
class SupportsStrikePoints(Protocol):
    """A system that names events of its event logs at which a fault is worth trying (``--nemesis-list`` lists them)."""

    @property
    def strike_points(self) -> Mapping[str, str]:
        """Event to what has happened by then."""


@runtime_checkable
class SupportsZooKeeperClient(Protocol):
    """A system that brings the ZooKeeper client that its own clients get from their runtime on real machines."""

    @property
    def zookeeper_client(self) -> str:
        """``module:callable``, called with ``host:port,...`` and the session timeout in seconds."""


@runtime_checkable
class SupportsSettings(Protocol):
    """A system with settings of its own that a run, or a search, may vary."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Settings and values of them under which the contract holds: what a search, or a mix, draws from.

        ``"1000..4000"`` is every whole number from 1000 to 4000.
        """

    def with_setting(self, name: str, value: str) -> System:
        """The same system with this setting. Raises ``ValueError`` that says what there is to be set, and to what."""


@runtime_checkable
class SupportsCodePackages(Protocol):
    """A system that says which Python code is its own; else that is the package that its class lies in."""

    @property
    def code_packages(self) -> Sequence[str]:
        """Packages and modules, as they are imported, in which a search counts the lines and branches that it reaches.

        Only what runs in the process of the simulation can be counted.
        """


@runtime_checkable
class SupportsStopSignal(Protocol):
    """A system that says by which signal a process of it is asked to end; else that is SIGTERM."""

    def stop_signal(self, role: str) -> Signals:
        """Of the main process of nodes of this role, such as ``signal.SIGINT``."""


@runtime_checkable
class SupportsRetention(Protocol):
    """A system whose logs delete what is old, and what is too much: its contract then knows the limits."""

    @property
    def retention_ms(self) -> int:
        """Of the workload's topics at first; -1: no limit."""

    @property
    def retention_bytes(self) -> int: ...


@runtime_checkable
class SupportsFailover(Protocol):
    """A system in which others take over from a server that is gone: its contract then knows how soon."""

    @property
    def failover(self) -> float:
        """Seconds, at most, until they begin to: in which a server that is silent is not missed yet."""


@runtime_checkable
class SupportsStrongerPromises(Protocol):
    """A system that with some of its settings promises more than its contracts say."""

    @property
    def rules_out(self) -> Sequence[str]:
        """Anomalies that must not happen with the settings that it has, also where a contract tolerates them."""


@runtime_checkable
class SupportsTurningPoints(Protocol):
    """A system that says which events of its event logs are turning points."""

    @property
    def turning_points(self) -> Sequence[str]:
        """Events in which a process says that another is in charge from now on, or that some other state has changed.

        A search strikes there more often than at others: what is handed over is easily dropped.
        """


StoredRecord = Mapping[str, Any]
"""One record of one replica, as it lies on a node's disk, or the end of its log: a row of the history's data set
``replicas``, column to value. Columns that may be null may be left out; any other name is an error.
"""


@runtime_checkable
class SupportsReplicas(Protocol):
    """A system whose replicas can be read off its nodes' disks, and compared."""

    async def replicas(self, cluster: Cluster) -> Sequence[StoredRecord]:
        """All records of all replicas, once the replicas have rejoined, or have not for so long as the system knows.

        Asked after the run, with every fault healed. Raises :class:`DeploymentError`, :class:`NodeError` or ``OSError``
        when a node's disk cannot be read.
        """


@runtime_checkable
class SupportsDataFolder(Protocol):
    """A system that says where its data are as a whole; a real node needs that to have its power cut."""

    def data_folder(self, node: Node) -> str:
        """Absolute path of the folder that is to be a disk of its own. The event log must not lie in there.

        The folder is there at each start of a process, in every kind of cluster, and is empty at the first.
        """


@runtime_checkable
class SupportsLockFiles(Protocol):
    """A system whose processes lock files in its data folder, so that no second one uses it."""

    def lock_files(self, node: Node) -> Sequence[str]:
        """Absolute paths. No fault removes, restores or changes these files, because a lock belongs to a file and not
        to its name.
        """


@runtime_checkable
class SupportsSoleReplica(Protocol):
    """A system that knows which of its servers have all of something; faults that take a server's data ask, and others
    until that one serves again.
    """

    async def alone_with(self, cluster: Cluster, node: Node, away: Collection[Node]) -> str | None:
        """A key of which no server but this one is known to have everything acknowledged, those not counted that are
        ``away``, as other faults keep them from the rest; None: there is none.
        """


@runtime_checkable
class SupportsDataFiles(Protocol):
    """A system that says where its data are; the faults that damage files need it."""

    def data_files(self, node: Node) -> Sequence[str]:
        """Patterns of append-only files, absolute; in each folder the last by name is the one appended to."""

    async def durable_size(self, node: Node, path: str) -> int:
        """How many of the file's first bytes the system takes for durable, by what it wrote down itself.

        Damage beyond is what an unclean stop may leave, and must be survived. Damage below is another matter, with a
        promise of its own. Asked while the node's process is dead.
        """


@runtime_checkable
class SupportsGroups(Protocol):
    """A system whose clients form groups; ``find(cluster, "coordinator", group)`` says who coordinates one."""

    @property
    def groups(self) -> Sequence[str]:
        """Those that the workload uses; empty when it uses none."""


@runtime_checkable
class SupportsClientSessions(Protocol):
    """A system whose clients, on nodes of their own, hold sessions at ZooKeeper themselves."""

    @property
    def client_sessions(self) -> bool: ...


@runtime_checkable
class SupportsHold(Protocol):
    """A system whose processes stop themselves on request (SIGSTOP) right after an event of their event log."""

    @property
    def start_events(self) -> Sequence[str]:
        """Events that every start of a process goes through."""

    def hold_file(self, node: Node) -> str:
        """Absolute path of the file that a process looks into at each event.

        One line per order: ``event``, or ``event key`` with a blank between. No file and an empty one mean none.
        """


@runtime_checkable
class SupportsMove(Protocol):
    """A system whose replicas can be moved from node to node while it runs."""

    async def replicas_of(self, cluster: Cluster, key: str) -> Sequence[Node] | None:
        """The nodes that have the key's replicas, as the system says; None while they move, or when it is not known."""

    async def move(self, cluster: Cluster, key: str, nodes: Sequence[Node]) -> str | None:
        """Has the replicas move to these nodes. None when that was accepted, else why not; then it is asked again."""

    def moved(self, line: Mapping[str, Any]) -> tuple[str, Sequence[int]] | None:
        """The key, and the indexes of the nodes that have its replicas now, where this line of an event log says that a
        move has ended; None for every other line, and always where event logs do not say that.

        Where others move replicas too, a move may be undone as soon as it has ended, and be seen by this alone.
        """


def zookeeper_servers(cluster: Cluster) -> str:
    """``address:port,...`` of every ZooKeeper node, as a client takes it."""
    return ",".join(at(node.address, ZOOKEEPER_PORT) for node in by_role(cluster, ZOOKEEPER_ROLE))
