"""etcd 3.4: registers with linearizable reads, judged by a model alone. In Docker; nodes install it from Debian.

pytest workloads/test_etcd.py --rate=100 --nemesis=kill --nemesis=partition --nemesis=stop --nemesis=power-loss

pytest workloads/test_etcd.py::test_etcd --rate=100 --nemesis=partition-isolate-leader --workload-mix=serializable-reads
pytest workloads/test_etcd.py::test_lock --rate=10 --nemesis=stop-consumer --nemesis-interval=12

A client says what it asked and what was answered, and has no ``effects``: the search for a legal order needs no more.
With ``serializable`` reads, which etcd says may be stale, it finds none
(https://etcd.io/docs/v3.4/learning/api_guarantees/). Its lock is held by a lease, so a holder that sleeps too long is
followed by another and does not know (https://jepsen.io/analyses/etcd-3.4.3).
"""

import asyncio
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from assay import (
    SET_ANOMALIES,
    BlockingClient,
    Cluster,
    Completion,
    Context,
    Endpoint,
    Generator,
    Node,
    Operation,
    Outcome,
    Phase,
    Settings,
    Software,
    System,
    WorkloadMix,
    by_role,
    experiment,
    forbid,
    linearizable,
    unfold,
)
from assay.workloads import sets
from assay.workloads.etcd_gateway import SECONDS, TROUBLE, ask, text
from assay.workloads.etcd_lock_client import FENCED, LockedSet

PORT, PEERS, DATA = 2379, 2380, "/var/lib/etcd-assay"
KEYS = tuple(f"r{number}" for number in range(5))


@dataclass(frozen=True)
class Etcd(System):
    name: str = "etcd"
    roles: Sequence[str] = ("server",)
    failover: float = 1.5
    """Seconds, by the time limit of an election below."""

    def software(self, role: str) -> Software:
        return Software(packages=("etcd-server",))

    def port(self, role: str) -> int:
        return PORT

    def data_folder(self, node: Node) -> str:
        return DATA

    def argv(self, node: Node) -> Sequence[str]:
        return ["sh", "-ec", "exec etcd $(cat /etc/assay-etcd)"]

    def files(self, node: Node, cluster: Cluster) -> Mapping[str, bytes]:
        members = ",".join(f"{one.name}=http://{one.address}:{PEERS}" for one in by_role(cluster, "server"))
        urls = {"peer": PEERS, "client": PORT}
        lines = [f"--name={node.name} --data-dir={DATA}/member --initial-cluster={members}"]
        lines += ["--heartbeat-interval=50 --election-timeout=500"]
        lines += [f"--listen-{what}-urls=http://0.0.0.0:{port}" for what, port in urls.items()]
        lines += [f"--initial-advertise-peer-urls=http://{node.address}:{PEERS}"]
        lines += [f"--advertise-client-urls=http://{node.address}:{PORT}"]
        return {"/etc/assay-etcd": " ".join(lines).encode()}

    async def ready(self, node: Node) -> bool:
        return "header" in await asyncio.to_thread(ask, f"{node.address}:{PORT}", "kv/range", key=text("ready"))

    async def find(self, cluster: Cluster, what: str, key: str | None = None) -> Node | None:
        for node in by_role(cluster, "server"):
            with suppress(*TROUBLE):
                status = await asyncio.to_thread(ask, f"{node.address}:{PORT}", "maintenance/status")
                if status["header"]["member_id"] == status.get("leader"):
                    return node
        return None

    def keys(self) -> Sequence[str]:
        return ["registers"]


STALE = WorkloadMix(
    name="serializable-reads",
    description="reads are answered by any member from what it has, and may be stale",
    client={"serializable-reads": (True,)},
)


class Registers(BlockingClient):
    """Asks its own member."""

    blocking = True

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.address, self.how = endpoint.address, {"serializable": True} if STALE.name in endpoint.options else {}
        ask(self.address, "kv/range", key=text("open"))

    def invoke(self, operation: Operation) -> Completion:
        key = text(operation.key)
        try:
            if operation.f == "read":
                found = ask(self.address, "kv/range", key=key, **self.how).get("kvs")
                return Completion(Outcome.OK, int(b64decode(found[0]["value"])) if found else None)
            if operation.f == "write":
                ask(self.address, "kv/put", key=key, value=text(operation.argument))
                return Completion(Outcome.OK)
            expected, new = operation.argument
            compare = [{"key": key, "target": "VALUE", "value": text(expected)}]
            put = [{"requestPut": {"key": key, "value": text(new)}}]
            answer = ask(self.address, "kv/txn", compare=compare, success=put)
            return Completion(Outcome.OK, answer.get("succeeded", False))
        except TROUBLE as error:
            return Completion(Outcome.FAIL if operation.f == "read" else Outcome.INFO, error=type(error).__name__)

    def close(self) -> None:
        """Each request has a connection of its own."""


def step(number: int, context: Context) -> tuple[Operation, int]:
    f, key = context.choose(("read", "read", "write", "cas"), salt=1), context.choose(KEYS, salt=2)
    value = context.below(5, salt=3)
    argument = {"read": None, "write": value, "cas": [context.below(5, salt=4), value]}[f]
    return Operation(f, key, argument), number + 1


@experiment(system=Etcd(), client=Registers, contract=linearizable("cas-register", patience=SECONDS), mixes=[STALE])
def test_etcd(settings: Settings) -> Generator:
    """A read shows the latest write, and a compare-and-set replaces what it expected."""
    return unfold(step, 0) | [Operation("read", key, phase=Phase.DRAIN) for key in KEYS] * 3


WITH_FENCE = WorkloadMix(
    name=FENCED,
    description="a holder writes only if its lock is there still, by the same transaction",
    client={FENCED: (True,)},
)


@experiment(system=Etcd(), client=LockedSet, contract=forbid(*SET_ANOMALIES), client_nodes=True, mixes=[WITH_FENCE])
def test_lock(settings: Settings) -> Generator:
    """Of those who change a set under etcd's lock, no one undoes what another has done."""
    return sets.traffic()
