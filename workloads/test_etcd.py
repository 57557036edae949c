"""Registers in etcd 3.4 with linearizable reads, and a set under etcd's lock. In Docker; nodes install it from Debian.

pytest workloads/test_etcd.py --rate=100 --nemesis=kill --nemesis=partition --nemesis=stop --nemesis=power-loss

pytest workloads/test_etcd.py::test_etcd --rate=100 --nemesis=partition-isolate-leader --workload-mix=serializable-reads
pytest workloads/test_etcd.py::test_lock --rate=10 --nemesis=stop-consumer --nemesis-interval=12

The register client has no ``effects``, because the search for a legal order needs only arguments and results.
``serializable`` reads may be stale (https://etcd.io/docs/v3.4/learning/api_guarantees/). With them, the search finds no
legal order.

etcd's lock belongs to a lease. If the lease of a paused holder expires, another client acquires the lock. After the
pause the first holder still writes (https://jepsen.io/analyses/etcd-3.4.3).
"""

from base64 import b64decode
from typing import Any

from assay import SET_ANOMALIES, Endpoint, Generator, Settings, WorkloadMix, experiment, forbid, linearizable
from assay.workloads.generic import sets
from assay.workloads.generic.registers import Registers, few_values
from assay.workloads.systems.etcd import Etcd
from assay.workloads.systems.etcd_gateway import SECONDS, TROUBLE, ask, encode_text
from assay.workloads.systems.etcd_lock_client import FENCED, EtcdLockedSet

KEYS = tuple(f"r{number}" for number in range(5))

STALE = WorkloadMix(
    name="serializable-reads",
    description="reads are answered by any member from its own data, and may be stale",
    client={"serializable-reads": (True,)},
    promised=False,  # etcd allows the anomalies that this mix provokes
)


class EtcdRegisters(Registers):
    """Client of the etcd member at its endpoint."""

    errors = TROUBLE

    def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.address, self.how = endpoint.address, {"serializable": True} if STALE.name in endpoint.options else {}
        ask(self.address, "kv/range", key=encode_text("open"))

    def read(self, key: str) -> int | None:
        found = ask(self.address, "kv/range", key=encode_text(key), **self.how).get("kvs")
        return int(b64decode(found[0]["value"])) if found else None

    def write(self, key: str, value: int) -> None:
        ask(self.address, "kv/put", key=encode_text(key), value=encode_text(value))

    def cas(self, key: str, expected: int, new: int) -> bool:
        compare = [{"key": encode_text(key), "target": "VALUE", "value": encode_text(expected)}]
        put = [{"requestPut": {"key": encode_text(key), "value": encode_text(new)}}]
        return bool(ask(self.address, "kv/txn", compare=compare, success=put).get("succeeded", False))

    def close(self) -> None:
        """Does nothing: each request has a connection of its own."""


CONTRACT = linearizable("cas-register", patience=SECONDS, may_stall=["outage", "outage-power-loss"])


@experiment(system=Etcd(), client=EtcdRegisters, contract=CONTRACT, mixes=[STALE])
def test_etcd(settings: Settings) -> Generator:
    """A read returns the latest write, and a compare-and-set replaces only the expected value."""
    return few_values(KEYS)


WITH_FENCE = WorkloadMix(
    name=FENCED,
    description="a holder writes only if it still has the lock, in one transaction",
    client={FENCED: (True,)},
)


@experiment(system=Etcd(), client=EtcdLockedSet, contract=forbid(*SET_ANOMALIES), client_nodes=True, mixes=[WITH_FENCE])
def test_lock(settings: Settings) -> Generator:
    """No client that changes a set under etcd's lock undoes the change of another client."""
    return sets.traffic()
