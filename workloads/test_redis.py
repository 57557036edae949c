"""Durability of elements in Redis with Sentinel: are acknowledged elements still in the set in the end?

pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20
pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20 --set=min-replicas-to-write=1

The system runs in Docker, and the nodes install it from Debian. An isolated primary continues to acknowledge writes,
and loses them when it becomes a replica of the newly elected primary. With ``min-replicas-to-write`` it rejects writes,
but only after ``min-replicas-max-lag``, so some writes are lost even then. Redis does not promise more
(https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/).
"""

from typing import Any

from assay import SET_ANOMALIES, Endpoint, Generator, Settings, experiment, forbid
from assay.workloads.generic import sets
from assay.workloads.systems.redis import Redis, find_primary
from assay.workloads.systems.redis_elements import RedisElements


class SentinelElements(RedisElements):
    """Client of the server at its endpoint if that is the primary, else of the primary that the sentinels name."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.sentinels = endpoint.roles["sentinel"]
        await super().open(endpoint, runtime)

    async def find_primary(self) -> str:
        return await find_primary(self.sentinels)


@experiment(system=Redis(), client=SentinelElements, contract=forbid(*SET_ANOMALIES))
def test_redis(settings: Settings) -> Generator:
    """No acknowledged element is missing from the set in the end."""
    return sets.traffic()
