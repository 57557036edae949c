"""Registers with compare-and-set in a ZooKeeper ensemble, explained in ``docs/guide/real_nodes.md``.

pytest workloads/test_zookeeper.py --cluster=docker --nemesis=partition
"""

from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException
from kazoo.handlers.threading import KazooTimeoutError

from assay import (
    REGISTER_ANOMALIES,
    ZOOKEEPER_PORT,
    Cluster,
    Completion,
    Endpoint,
    Generator,
    Node,
    Operation,
    Settings,
    System,
    experiment,
    forbid,
)
from assay.cluster import zookeeper
from assay.workloads.generic.registers import VersionedRegisters, unique_values

KEYS, BARRIER = [f"/register-{n}" for n in range(3)], "/barrier"
STALL = ["outage", "partition-one-way"]  # outage: no server is up; one-way: a leader that receives nothing stays leader
SECONDS, RETRY = 4.0, {"max_tries": -1, "max_delay": 0.5}  # timeout of an operation; half of it for a connection


class Ensemble(System):
    name, roles = "zookeeper", ("server",)

    def port(self, role: str) -> int:
        return ZOOKEEPER_PORT

    def argv(self, node: Node) -> list[str]:
        return zookeeper.server_command()

    def files(self, node: Node, cluster: Cluster) -> dict[str, bytes]:
        return zookeeper.server_files(node, cluster)

    def data_folder(self, node: Node) -> str:
        return zookeeper.DATA

    async def ready(self, node: Node) -> bool:
        return await zookeeper.is_ready(node)

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        return await zookeeper.find_leader(cluster.nodes)

    def keys(self) -> list[str]:
        return KEYS


class RegisterClient(VersionedRegisters):
    errors = (KazooException, KazooTimeoutError)
    refusals = (BadVersionError,)
    until: float

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.zk = KazooClient(",".join(endpoint.all), SECONDS / 2, connection_retry=RETRY, randomize_hosts=False)
        self.zk.start(timeout=SECONDS)
        for path in (*KEYS, BARRIER):
            self.zk.ensure_path_async(path).get(timeout=SECONDS)

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()

    def invoke(self, operation: Operation) -> Completion:
        self.until = monotonic() + SECONDS
        return super().invoke(operation)

    def read(self, key: str) -> dict[str, Any]:
        self.answer(self.zk.set_async(BARRIER, b""))  # the server catches up with this write, so the read is not stale
        data, stat = self.answer(self.zk.get_async(key))
        return {"value": int(data) if data else None, "version": stat.version}

    def write(self, key: str, value: int, version: int | None = None) -> dict[str, Any]:
        asked = self.zk.set_async(key, b"%d" % value, -1 if version is None else version)
        return {"value": value, "version": self.answer(asked).version}

    def answer(self, call: Any) -> Any:
        return call.get(timeout=max(0.0, self.until - monotonic()))


@experiment(system=Ensemble(), client=RegisterClient, contract=forbid(*REGISTER_ANOMALIES, may_stall=STALL))
def test_zookeeper(settings: Settings) -> Generator:
    """A read sees the latest write, and a compare-and-set replaces the expected value."""
    return unique_values(KEYS)
