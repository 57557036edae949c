"""A ZooKeeper ensemble as registers with compare-and-set: a system of its own. ``docs/your_own_system.md`` explains it.

pytest workloads/test_zookeeper.py --cluster=docker --nemesis=partition
"""

from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException

from assay import (
    REGISTER_ANOMALIES,
    ZOOKEEPER_PORT,
    Cluster,
    Completed,
    Completion,
    Context,
    Effect,
    Endpoint,
    Generator,
    Node,
    Operation,
    Outcome,
    Phase,
    Settings,
    System,
    experiment,
    forbid,
    unfold,
)
from assay.cluster import zookeeper

KEYS, BARRIER, DEAF = [f"/register-{n}" for n in range(3)], "/barrier", ["partition-one-way"]  # deaf leaders stay
SECONDS, RETRY = 4.0, {"max_tries": -1, "max_delay": 0.5}  # for one operation; half of it for a connection


class Ensemble(System):
    name, roles = "zookeeper", ("server",)

    def port(self, role: str) -> int:
        return ZOOKEEPER_PORT

    def argv(self, node: Node) -> list[str]:
        return zookeeper.argv()

    def files(self, node: Node, cluster: Cluster) -> dict[str, bytes]:
        return zookeeper.files(node, cluster)

    async def ready(self, node: Node) -> bool:
        return await zookeeper.ready(node)

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        return await zookeeper.leader(cluster.nodes)

    def keys(self) -> list[str]:
        return KEYS


class RegisterClient:
    blocking = True
    until: float
    replacing: dict[str, Any] | None

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.zk = KazooClient(",".join(endpoint.all), SECONDS / 2, connection_retry=RETRY, randomize_hosts=False)
        self.zk.start(timeout=SECONDS)
        for path in (*KEYS, BARRIER):
            self.zk.ensure_path_async(path).get(timeout=SECONDS)

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()

    def invoke(self, operation: Operation) -> Completion:
        self.until, self.replacing = monotonic() + SECONDS, None
        try:
            return Completion(Outcome.OK, getattr(self, operation.f)(operation.key, operation.argument))
        except (KazooException, self.zk.handler.timeout_exception) as error:  # a write may still arrive, mostly
            asked = operation.f == "write" or self.replacing is not None
            unchanged = not asked or isinstance(error, BadVersionError)
            return Completion(Outcome.FAIL if unchanged else Outcome.INFO, self.replacing, error=type(error).__name__)

    def read(self, key: str, _: None = None) -> dict[str, Any]:
        self.answer(self.zk.set_async(BARRIER, b""))  # what is read after a write is not older than the write
        data, stat = self.answer(self.zk.get_async(key))
        return {"value": int(data) if data else None, "version": stat.version}

    def write(self, key: str, value: int, version: int = -1) -> dict[str, Any]:
        return {"value": value, "version": self.answer(self.zk.set_async(key, b"%d" % value, version)).version}

    def cas(self, key: str, value: int) -> dict[str, Any]:
        seen = self.read(key)
        self.replacing = {"expected": seen["value"]}  # also where no answer comes
        return self.write(key, value, seen["version"]) | self.replacing

    def answer(self, call: Any) -> Any:
        return call.get(timeout=max(0.0, self.until - monotonic()))

    @staticmethod
    def effects(completed: Completed) -> list[Effect]:
        operation, completion = completed.operation, completed.completion
        result, f = completion.result or {}, operation.f
        if f == "cas" and completion.outcome is Outcome.INFO and "expected" not in result:
            f = "write"  # given up by the harness: what it has replaced, if anything, is unknown
        return [
            Effect(
                f"register-{f}",
                str(operation.key),
                version=result.get("version"),
                value=result.get("value", operation.argument),
                expected=result.get("expected"),
            )
        ]


def step(value: int, context: Context) -> tuple[Operation, int]:
    f = context.choose(("read", "read", "write", "cas"), salt=1)
    return Operation(f, context.choose(KEYS, salt=2), None if f == "read" else value), value + 1


@experiment(system=Ensemble(), client=RegisterClient, contract=forbid(*REGISTER_ANOMALIES, may_stall=DEAF))
def test_zookeeper(settings: Settings) -> Generator:
    """A read sees the latest write, and a compare-and-set replaces what it expected."""
    return unfold(step, 1) | [Operation("read", key, phase=Phase.DRAIN) for key in KEYS]
