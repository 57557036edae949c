"""Durability of elements in Redis Cluster: are acknowledged elements still in the sets in the end?

pytest workloads/test_redis_cluster.py --rate=200 --nemesis=partition-isolate-leader
pytest workloads/test_redis_cluster.py --rate=200 --nemesis=partition-isolate-leader --workload-mix=wait
pytest workloads/test_redis_cluster.py --rate=200 --nemesis=kill

pytest workloads/test_redis_cluster.py --rate=200 --nemesis=power-loss --nemesis-target=all --set=appendfsync=always

The system runs in Docker, and six nodes install it from Debian. An isolated master continues to acknowledge writes for
one node timeout. It loses them when it becomes a replica of the newly elected master ("write safety" in
https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/). With ``WAIT`` after each add, a client
learns whether a replica has the element. An element without a replica then does not count as acknowledged.
"""

from collections.abc import Sequence
from typing import Any

from assay import (
    SET_ANOMALIES,
    Completion,
    Endpoint,
    Generator,
    Operation,
    Outcome,
    Settings,
    WorkloadMix,
    experiment,
    forbid,
)  # fmt: skip
from assay.workloads.generic import sets
from assay.workloads.systems.redis_cluster import KEYS, RedisCluster
from assay.workloads.systems.resp import ask, converse

SECONDS, REDIRECTIONS = 1.0, 5
WAIT = WorkloadMix(
    name="wait", description="an add is acknowledged once a replica has it, too", client={"wait": (True,)}
)


class RedisClusterElements(sets.SetClient):
    """Client of the last known owner of each key, or of the node at its endpoint if no owner is known."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.own, self.waits, self.owners = endpoint.address, WAIT.name in endpoint.options, dict[str, str]()
        await ask(self.own, "PING")

    async def invoke(self, operation: Operation) -> Completion:
        key = str(operation.key)
        try:
            if operation.f == sets.READ:
                (elements,) = await self._follow(key, ("SMEMBERS", key))
                return Completion(Outcome.OK, sorted(map(int, elements)))
            wait = [("WAIT", 1, 500)] if self.waits else []
            added, *replicas = await self._follow(key, ("SADD", key, operation.argument), *wait)
        except ValueError as error:  # CLUSTERDOWN, NOREPLICAS, LOADING: not executed
            self.owners.pop(key, None)
            return Completion(Outcome.FAIL, error=str(error).split()[0])
        except (OSError, EOFError) as error:
            return Completion(Outcome.INFO, error=type(error).__name__)
        if not replicas or (isinstance(replicas[0], int) and replicas[0] >= 1):  # the number of replicas that have it
            return Completion(Outcome.OK, added)
        return Completion(Outcome.INFO, error=f"unreplicated: WAIT {replicas[0]}")  # not acknowledged, but may survive

    async def _follow(self, key: str, *commands: Sequence[object]) -> list[Any]:
        """Returns the answers of the key's owner. Follows permanent (MOVED) and one-time (ASK) redirections.

        Raises ``ValueError`` if the first answer is any other error.
        """
        address, asking = self.owners.get(key, self.own), list[Sequence[object]]()
        for _ in range(REDIRECTIONS):
            replies = (await converse(address, *asking, *commands, seconds=SECONDS))[len(asking) :]
            if not isinstance(replies[0], ValueError):
                return replies
            word, *rest = str(replies[0]).split()
            if word not in ("MOVED", "ASK"):
                raise replies[0]
            address, asking = rest[-1], [("ASKING",)] if word == "ASK" else []
            if word == "MOVED":
                self.owners[key] = address
        raise ValueError(f"MOVED {REDIRECTIONS} times")

    async def close(self) -> None:
        """Does nothing: each command has a connection of its own."""


CONTRACT = forbid(*SET_ANOMALIES, patience=SECONDS, may_stall=["power-loss", "outage", "outage-power-loss"])
"""Contract. After a power loss on all nodes, or during an outage, no request is served."""


@experiment(system=RedisCluster(), client=RedisClusterElements, contract=CONTRACT, mixes=[WAIT])
def test_redis_cluster(settings: Settings) -> Generator:
    """No acknowledged element is missing from its set in the end."""
    return sets.traffic(KEYS)
