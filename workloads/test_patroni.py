r"""Durability of rows in PostgreSQL 15 with Patroni: do committed rows survive a failover? In Docker, from Debian.

pytest workloads/test_patroni.py --rate=100 --nemesis=partition-leader-and-follower --nemesis-interval=60 \
    --time-limit=80 [--set=synchronous_mode=on]

Replication is asynchronous by default. An isolated primary commits until it notices its isolation. These commits are
lost when another server is promoted (https://patroni.readthedocs.io/en/latest/replication_modes.html). With
``synchronous_mode`` a commit waits for a replica, and only a replica with all commits is promoted.
"""

from collections.abc import Sequence

import psycopg

from assay import SET_ANOMALIES, Completion, Endpoint, Generator, Operation, Outcome, Settings, experiment, forbid
from assay.workloads.generic import sets
from assay.workloads.systems.patroni import Patroni
from assay.workloads.systems.postgresql_primary import connect


class PatroniElements(sets.SetClient):
    """Stores each element as a row, on the server that accepts writes."""

    blocking = True  # ``invoke`` blocks, so each client gets a thread of its own

    def open(self, endpoint: Endpoint, runtime: object) -> None:
        self.session = connect([address.partition(":")[0] for address in endpoint.all])

    def invoke(self, operation: Operation) -> Completion:
        try:
            return Completion(Outcome.OK, self._execute(operation))
        except psycopg.Error as error:
            return Completion(Outcome.INFO, error=type(error).__name__)  # the next session finds the current primary

    def _execute(self, operation: Operation) -> Sequence[int] | None:
        with self.session.transaction():
            if operation.f == sets.ADD:
                self.session.execute("insert into elements values (%s)", [operation.argument])
                return None
            return [element for (element,) in self.session.execute("select element from elements")]

    def close(self) -> None:
        self.session.close()


STALLING = ("partition", "partition-leader-and-follower", "kill", "stop")
"""Faults under which no server may accept writes until the lease has expired."""
CONTRACT = forbid(*SET_ANOMALIES, recovery_deadline=60, may_stall=STALLING)


@experiment(system=Patroni(), client=PatroniElements, contract=CONTRACT)
def test_patroni(settings: Settings) -> Generator:
    """No element whose commit was acknowledged is missing in the end."""
    return sets.traffic()
