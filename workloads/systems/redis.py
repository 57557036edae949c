"""Deployment of Redis with Sentinel in Docker, and its current primary. The nodes install it from Debian."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from assay import Cluster, Node, Software, System, by_role
from assay.workloads.generic import sets
from assay.workloads.systems.resp import ask

PORTS = {"server": 6379, "sentinel": 26379}
VARIANTS = {"min-replicas-to-write": ("0", "1"), "min-replicas-max-lag": ("1", "10")}
"""Settings (``--set``) with their values."""


@dataclass(frozen=True)
class Redis(System):
    name: str = "redis"
    roles: Sequence[str] = ("server", "sentinel")
    client_roles: Sequence[str] = ("server",)
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: VARIANTS)
    chosen: tuple[str, ...] = ()
    """Lines of the configuration file, one for each chosen setting."""

    def with_setting(self, name: str, value: str) -> System:
        if name not in self.variants:
            raise ValueError(f"{self.name} has no setting {name} here; it has {', '.join(self.variants)}")
        return replace(self, chosen=(*self.chosen, f"{name} {value}"))

    def software(self, role: str) -> Software:
        return Software(packages=(f"redis-{role}",))

    def port(self, role: str) -> int:
        return PORTS[role]

    def argv(self, node: Node) -> Sequence[str]:
        return [f"redis-{node.role}", f"/etc/assay-{node.role}.conf"]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        first, sentinels = by_role(cluster, "server")[0], by_role(cluster, "sentinel")
        primary = f"{first.address} {PORTS['server']}"
        lines = [f"port {PORTS[node.role]}", "protected-mode no", "dir /var/tmp"]
        if node.role == "sentinel":
            lines += [f"sentinel monitor main {primary} {len(sentinels) // 2 + 1}"]
            lines += ["sentinel down-after-milliseconds main 1000", "sentinel failover-timeout main 3000"]
        else:
            lines += ["appendonly yes", *self.chosen, *([] if node is first else [f"replicaof {primary}"])]
        return {f"/etc/assay-{node.role}.conf": "\n".join(lines).encode() + b"\n"}

    async def ready(self, node: Node) -> bool:
        if node.role == "server":
            return "master_link_status:down" not in await ask(
                f"{node.address}:{PORTS['server']}", "INFO", "replication"
            )
        reply = await ask(f"{node.address}:{PORTS['sentinel']}", "SENTINEL", "MASTER", "main")
        state = dict(zip(reply[::2], reply[1::2], strict=True))
        return int(state["num-other-sentinels"]) > 0 and int(state["num-slaves"]) > 0

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        sentinels = [f"{node.address}:{PORTS['sentinel']}" for node in by_role(cluster, "sentinel")]
        primary = (await find_primary(sentinels)).partition(":")[0]
        return next((node for node in by_role(cluster, "server") if node.address == primary), None)

    def keys(self) -> Sequence[str]:
        return [sets.KEY]


async def find_primary(sentinels: Sequence[str]) -> str:
    """Returns the primary's address according to the first sentinel that answers. Raises ``OSError``."""
    for sentinel in sentinels:
        try:
            return ":".join(await ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
        except (OSError, EOFError, ValueError, TypeError):
            continue
    raise OSError("no sentinel answers")
