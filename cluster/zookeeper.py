"""A real ZooKeeper server as a node's main process: its files, its command, and requests to it.

The timings suit tests: with ``tickTime`` 500 ms a session lasts from 1 to 10 s, so faults of seconds have an effect.
``forceSync`` stays on: a ZooKeeper that loses acknowledged writes on power loss would be a defect of the test setup.
"""

import asyncio
import ipaddress
import re
from collections.abc import Mapping, Sequence

from assay.cluster.node import Cluster, Dial, Node, by_role, get_dial, join_host_port
from assay.cluster.system import ZOOKEEPER_PORT

DATA = "/var/lib/zookeeper"
CONFIG = "/etc/zookeeper/zoo.cfg"
TICK = 500
"""Milliseconds."""
PEER_PORT, ELECTION_PORT = 2888, 3888

JARS = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
"""Debian's libzookeeper-java and libslf4j-java; the first jar's manifest names all the others."""
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def server_command(heap: int = 128, config: str = CONFIG) -> list[str]:
    """Returns the command. ``heap`` is in MiB.

    With a single garbage collector thread and one compiler level, the server is ready half a second after its start.
    """
    return [
        "java",
        f"-Xmx{heap}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        "-cp",
        JARS,
        MAIN,
        config,
    ]


def render_configuration(
    servers: Mapping[int, str], *, data: str = DATA, port: int = ZOOKEEPER_PORT, extra: Mapping[str, str] | None = None
) -> str:
    """Returns the text of zoo.cfg. ``servers`` maps id (the node's index) to address; a single server has no quorum."""
    settings = {
        "tickTime": str(TICK),
        # Faults last some seconds, and an ensemble must elect a new leader within that time. A new leader whose
        # followers do not get in sync waits for initLimit, and no server serves until then.
        "initLimit": "4",  # Ticks to connect to the leader and to copy its state: 2 s
        "syncLimit": "2",  # Ticks a follower may be behind: 1 s
        "dataDir": data,
        "clientPort": str(port),
        "maxClientCnxns": "0",  # without limit: every client of a run comes from one address
        "4lw.commands.whitelist": "ruok,srvr,stat,cons,dump",
        "admin.enableServer": "false",
        "autopurge.purgeInterval": "0",  # a run's transactions are evidence
        **(extra or {}),
    }
    if len(servers) > 1:
        for number, address in sorted(servers.items()):
            settings[f"server.{number}"] = f"{join_host_port(address, PEER_PORT)}:{ELECTION_PORT}"
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def server_files(node: Node, cluster: Cluster) -> dict[str, bytes]:
    """Returns the files that must be on ``node`` before :func:`server_command` starts: absolute path to content.

    The ensemble consists of all nodes of the node's role, whatever name the role has in the system.
    """
    servers = {peer.index: peer.address for peer in by_role(cluster, node.role)}
    return {CONFIG: render_configuration(servers).encode(), f"{DATA}/myid": f"{node.index}\n".encode()}


async def is_ready(node: Node) -> bool:
    """Returns whether ``srvr`` reports a mode (standalone, leader, follower), not "not currently serving requests"."""
    return await read_mode(node.address, ZOOKEEPER_PORT, dial=get_dial(node)) is not None


async def is_serving(host: str, port: int, timeout: float = 2.0) -> bool:
    """Does the same as :func:`is_ready`, by address; ``timeout`` is in seconds."""
    return await read_mode(host, port, timeout) is not None


async def read_mode(host: str, port: int, timeout: float = 2.0, dial: Dial = asyncio.open_connection) -> str | None:
    """Returns the server's mode: ``standalone``, ``leader`` or ``follower``; None if it does not serve in time.

    ``timeout``: in seconds.
    """
    try:
        async with asyncio.timeout(timeout):
            answer = await send_four_letter_word(host, port, b"srvr", dial=dial)
    except (OSError, TimeoutError):
        return None
    return next((line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")), None)


async def read_connected_sessions(nodes: Sequence[Node], timeout: float = 2.0) -> dict[int, tuple[str, float]]:
    """Returns the sessions connected to these servers: session id to client address and session timeout in seconds.

    A server that does not answer within ``timeout`` seconds is skipped.
    """
    answers = await _ask_all(nodes, b"cons", timeout)
    found = [match for text in answers for match in _CONNECTION.finditer(text)]
    return {
        int(match["session"], 16): (str(ipaddress.ip_address(match["address"])), int(match["timeout"]) / 1000)
        for match in found
    }


async def read_sessions(nodes: Sequence[Node], timeout: float = 2.0) -> set[int] | None:
    """Returns all sessions that these servers know; None if no server answers within ``timeout`` seconds."""
    # The section of connections comes last and is ignored, because some connections briefly outlive their sessions. A
    # dump without that heading is incomplete.
    dumps = [text.partition("Connections dump") for text in await _ask_all(nodes, b"dump", timeout)]
    known = [before for before, heading, _ in dumps if heading and before.startswith(_TRACKER)]
    return {int(word, 16) for text in known for word in _SESSION.findall(text)} if known else None


_CONNECTION = re.compile(
    r"/\[?(?P<address>[0-9a-f.:]+?)(?:%\w+)?\]?:\d+\[\d+\]\("
    r".*sid=0x(?P<session>[0-9a-f]+),.*to=(?P<timeout>\d+)"
)
_TRACKER = "SessionTracker dump"
_SESSION = re.compile(r"^\s*0x([0-9a-f]+)", re.MULTILINE)


async def _ask_all(nodes: Sequence[Node], word: bytes, timeout: float) -> list[str]:
    async def ask(node: Node) -> str:
        try:
            async with asyncio.timeout(timeout):
                return await send_four_letter_word(node.address, ZOOKEEPER_PORT, word, long=True, dial=get_dial(node))
        except OSError:  # a TimeoutError is one
            return ""

    return list(await asyncio.gather(*(ask(node) for node in nodes)))


async def send_four_letter_word(
    host: str, port: int, word: bytes, *, long: bool = False, dial: Dial = asyncio.open_connection
) -> str:
    """Returns the answer to one of ZooKeeper's four-letter words.

    ``long``: the answer may arrive in pieces. Raises ``OSError``.
    """
    reader, writer = await dial(host, port)
    try:
        writer.write(word)
        return (await reader.read(-1 if long else 65536)).decode("utf-8", "replace")
    finally:
        writer.close()


async def find_leader(nodes: Sequence[Node], timeout: float = 0.5) -> Node | None:
    """Returns the only node that reports to be the leader within ``timeout`` seconds; None if there is not just one."""
    modes = await asyncio.gather(*(read_mode(node.address, ZOOKEEPER_PORT, timeout, get_dial(node)) for node in nodes))
    leaders = [node for node, found in zip(nodes, modes, strict=True) if found == "leader"]
    return leaders[0] if len(leaders) == 1 else None
