"""Deployment of Redis Cluster in Docker, and the owners of its keys. The nodes install it from Debian.

At first each ``server`` is a master with an equal share of the slots, and each ``replica`` follows one. The roles may
change later: if a master has not answered for a node timeout, the other masters promote its replica.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from assay import Cluster, Node, Software, by_role
from assay.workloads.systems.redis import VARIANTS, Redis
from assay.workloads.systems.resp import ask

PORT, DATA, CONFIG, SLOTS = 6379, "/var/lib/redis-assay", "/etc/assay-redis.conf", 16384
KEYS = ("elements-0", "elements-1", "elements-2")
"""Sets in slots of different masters, if there are three."""
TIMEOUT, MILLISECONDS = "cluster-node-timeout", 2000
SETTINGS = VARIANTS | {TIMEOUT: ("1000", str(MILLISECONDS)), "appendfsync": ("everysec", "always")}


async def find_owner(address: str, key: str) -> str | None:
    """Returns the owner of the key's slot according to this node; None if the node does not name one."""
    try:
        await ask(address, "SCARD", key, seconds=0.5)
    except ValueError as error:
        return str(error).split()[-1] if str(error).startswith("MOVED") else None
    except (OSError, EOFError):
        return None
    return address


async def repeat_until_true(done: Callable[[], Awaitable[object]]) -> None:
    """Repeats a call until its result is true. The harness limits the time."""
    while True:
        with suppress(ValueError, OSError, EOFError):  # the node does not know its peer yet, or loads a snapshot
            if await done():
                return
        await asyncio.sleep(0.1)


@dataclass(frozen=True)
class RedisCluster(Redis):
    name: str = "redis-cluster"
    roles: Sequence[str] = ("server", "replica")
    client_roles: Sequence[str] = ("server", "replica")
    failover: float = 6.0
    """Seconds: all masters detect a failure after at most two node timeouts, and an election takes one or two seconds.
    """
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: SETTINGS)

    def software(self, role: str) -> Software:
        return Software(packages=("redis-server",))

    def port(self, role: str) -> int:
        return PORT

    def data_folder(self, node: Node) -> str:
        return DATA

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", f"mkdir -p {DATA} && exec redis-server {CONFIG}"]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        lines = [f"port {PORT}", "protected-mode no", f"dir {DATA}", "appendonly yes", "repl-diskless-sync-delay 0"]
        lines += ["cluster-enabled yes", f"{TIMEOUT} {MILLISECONDS}", *self.chosen]
        return {CONFIG: "\n".join(lines).encode() + b"\n"}

    async def ready(self, node: Node) -> bool:
        """Returns whether the node is ready.

        Before ``set_up``, a ready node knows no other node. Afterwards it knows the owner of each slot, and a replica
        has a link to its master.
        """
        info = await ask(f"{node.address}:{PORT}", "CLUSTER", "INFO")
        replication = await ask(f"{node.address}:{PORT}", "INFO", "replication")
        joined = "cluster_state:ok" in info and "master_link_status:down" not in replication
        return joined or "cluster_known_nodes:1\r" in info

    async def set_up(self, cluster: Cluster) -> None:
        masters, replicas = ([f"{node.address}:{PORT}" for node in by_role(cluster, role)] for role in self.roles)
        for number, master in enumerate(masters):
            low, high = (SLOTS * bound // len(masters) for bound in (number, number + 1))
            await ask(master, "CLUSTER", "ADDSLOTSRANGE", low, high - 1)
        for other in (*masters[1:], *replicas):
            await ask(masters[0], "CLUSTER", "MEET", *other.split(":"))
        for number, replica in enumerate(replicas):
            master = await ask(masters[number % len(masters)], "CLUSTER", "MYID")
            await repeat_until_true(partial(ask, replica, "CLUSTER", "REPLICATE", master))
        for node in cluster.nodes:
            await repeat_until_true(partial(self.ready, node))

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        """Returns the owner that most nodes name, because an isolated master names itself."""
        owners = await asyncio.gather(*(find_owner(f"{node.address}:{PORT}", key or KEYS[0]) for node in cluster.nodes))
        most = Counter(filter(None, owners)).most_common(1)
        return next((node for node in cluster.nodes if most and f"{node.address}:{PORT}" == most[0][0]), None)

    def keys(self) -> Sequence[str]:
        return KEYS
