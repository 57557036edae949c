"""Registers in etcd 3.4 with linearizable reads, and a set under etcd's lock. In Docker; nodes install it from Debian.

pytest workloads/test_etcd.py --rate=100 --nemesis=kill --nemesis=partition --nemesis=stop --nemesis=power-loss

pytest workloads/test_etcd.py::test_etcd --rate=100 --nemesis=partition-isolate-leader --workload-mix=serializable-reads
pytest workloads/test_etcd.py::test_lock --rate=10 --nemesis=stop-consumer --nemesis-interval=12

etcd's lock belongs to a lease. If the lease of a paused holder expires, another client acquires the lock. After the
pause the first holder still writes (https://jepsen.io/analyses/etcd-3.4.3).
"""

from assay import SET_ANOMALIES, Generator, Settings, WorkloadMix, experiment, forbid, linearizable
from assay.workloads.generic import sets
from assay.workloads.generic.registers import few_values
from assay.workloads.systems.etcd import Etcd
from assay.workloads.systems.etcd_gateway import SECONDS
from assay.workloads.systems.etcd_lock_client import FENCED, EtcdLockedSet
from assay.workloads.systems.etcd_registers import SERIALIZABLE_READS, EtcdRegisters

KEYS = tuple(f"r{number}" for number in range(5))

STALE = WorkloadMix(
    name=SERIALIZABLE_READS,
    description="reads are answered by any member from its own data, and may be stale",
    client={SERIALIZABLE_READS: (True,)},
    promised=False,  # etcd allows the anomalies that this mix provokes
)

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
