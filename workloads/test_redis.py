"""Redis with Sentinel: is an element that was acknowledged still there? In Docker; nodes install it from Debian.

pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20
pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20 --set=min-replicas-to-write=1

A primary that is cut off goes on acknowledging, and forgets that when it becomes a replica of the one that the
sentinels chose meanwhile. ``min-replicas-to-write`` makes it refuse, after ``min-replicas-max-lag``, so some are lost
even then: Redis promises none of it (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay import (
    SET_ANOMALIES,
    Cluster,
    Completed,
    Completion,
    Effect,
    Endpoint,
    Generator,
    Node,
    Operation,
    Outcome,
    Settings,
    Software,
    System,
    by_role,
    experiment,
    forbid,
)  # fmt: skip
from assay.workloads import sets

PORTS = {"server": 6379, "sentinel": 26379}
VARIANTS = {"min-replicas-to-write": ("0", "1"), "min-replicas-max-lag": ("1", "10")}


async def ask(address: str, *words: object, seconds: float = 1.0) -> Any:
    """One command on a connection of its own. Raises ``OSError``, and ``ValueError`` for an error that it answers."""
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        try:
            texts = [str(word).encode() for word in words]
            writer.write(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts))
            return await answer(reader)
        finally:
            writer.close()


async def answer(reader: asyncio.StreamReader) -> Any:
    """In RESP: an integer, text, a list, or None."""
    line = (await reader.readuntil(b"\r\n"))[:-2].decode()
    kind, rest = line[0], line[1:]
    if kind == "-":
        raise ValueError(rest)
    if kind == "*":
        return [await answer(reader) for _ in range(int(rest))]
    if kind == "$":
        return None if rest == "-1" else (await reader.readexactly(int(rest) + 2))[:-2].decode()
    return int(rest) if kind == ":" else rest


@dataclass(frozen=True)
class Redis(System):
    name: str = "redis"
    roles: Sequence[str] = ("server", "sentinel")
    client_roles: Sequence[str] = ("server",)
    variants: Mapping[str, Sequence[str]] = field(default_factory=lambda: VARIANTS)
    chosen: tuple[str, ...] = ()

    def with_setting(self, name: str, value: str) -> System:
        if name not in VARIANTS:
            raise ValueError(f"redis has no setting {name} here; it has {', '.join(VARIANTS)}")
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
        said = await ask(f"{node.address}:{PORTS['sentinel']}", "SENTINEL", "MASTER", "main")
        known = dict(zip(said[::2], said[1::2], strict=True))
        return int(known["num-other-sentinels"]) > 0 and int(known["num-slaves"]) > 0

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        sentinels = [f"{node.address}:{PORTS['sentinel']}" for node in by_role(cluster, "sentinel")]
        primary = (await leader(sentinels)).partition(":")[0]
        return next((node for node in by_role(cluster, "server") if node.address == primary), None)

    def keys(self) -> Sequence[str]:
        return [sets.KEY]


async def leader(sentinels: Sequence[str]) -> str:
    """The primary's address, as the first sentinel that answers knows it. Raises ``OSError``."""
    for sentinel in sentinels:
        try:
            return ":".join(await ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
        except (OSError, EOFError, ValueError, TypeError):
            continue
    raise OSError("no sentinel answers")


class Elements:
    """Asks its own server, if that says that it is the primary; else whom the sentinels name."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.sentinels = endpoint.roles["sentinel"]
        role = await ask(endpoint.address, "ROLE")
        self.primary = endpoint.address if role[0] == "master" else await leader(self.sentinels)

    async def invoke(self, operation: Operation) -> Completion:
        try:
            if operation.f == sets.ADD:
                return Completion(Outcome.OK, await ask(self.primary, "SADD", sets.KEY, operation.argument))
            return Completion(Outcome.OK, sorted(map(int, await ask(self.primary, "SMEMBERS", sets.KEY))))
        except ValueError as error:  # READONLY, NOREPLICAS, LOADING: not done
            if str(error).startswith("READONLY"):
                self.primary = await leader(self.sentinels)
            return Completion(Outcome.FAIL, error=str(error).split()[0])
        except (OSError, EOFError) as error:
            return Completion(Outcome.INFO, error=type(error).__name__)

    async def close(self) -> None:
        """Each command has a connection of its own."""

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return sets.effects(completed)


@experiment(system=Redis(), client=Elements, contract=forbid(*SET_ANOMALIES))
def test_redis(settings: Settings) -> Generator:
    """No element that was acknowledged is missing from the set in the end."""
    return sets.traffic()
