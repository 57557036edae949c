"""Durability of elements in Redis with Sentinel: are acknowledged elements still in the set in the end?

pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20
pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20 --set=min-replicas-to-write=1

The system runs in Docker, and the nodes install it from Debian. An isolated primary continues to acknowledge writes,
and loses them when it becomes a replica of the newly elected primary. With ``min-replicas-to-write`` it rejects writes,
but only after ``min-replicas-max-lag``, so some writes are lost even then. Redis does not promise more
(https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from assay import SET_ANOMALIES, Completion, Endpoint, Generator, Operation, Outcome, Settings, experiment, forbid
from assay.workloads.generic import sets
from assay.workloads.systems.redis import Redis, find_primary
from assay.workloads.systems.resp import ask, converse


class RedisElements(sets.SetClient):
    """Client of the server at its endpoint if that is the primary, else of the primary that the sentinels name."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.sentinels = endpoint.roles["sentinel"]
        role = await ask(endpoint.address, "ROLE")
        self.primary = endpoint.address if role[0] == "master" else await find_primary(self.sentinels)

    async def invoke(self, operation: Operation) -> Completion:
        try:
            if operation.f == sets.ADD:
                return Completion(Outcome.OK, await ask(self.primary, "SADD", sets.KEY, operation.argument))
            return Completion(Outcome.OK, sorted(map(int, await self._read())))
        except ValueError as error:  # READONLY, NOREPLICAS, LOADING: not executed
            if str(error).startswith("READONLY"):
                with suppress(OSError):  # no sentinel answers: the next operation tries again
                    self.primary = await find_primary(self.sentinels)
            return Completion(Outcome.FAIL, error=str(error).split()[0])
        except (OSError, EOFError) as error:
            return Completion(Outcome.INFO, error=type(error).__name__)

    async def _read(self) -> Sequence[str]:
        """Returns the elements. Checks the server's role as well, because a demoted primary also answers reads."""
        elements, role = await converse(self.primary, ("SMEMBERS", sets.KEY), ("ROLE",))
        for reply in (elements, role):
            if isinstance(reply, ValueError):
                raise reply
        if role[0] != "master":
            raise ValueError(f"READONLY its role is {role[0]}")
        answered: Sequence[str] = elements
        return answered

    async def close(self) -> None:
        """Does nothing: each command has a connection of its own."""


@experiment(system=Redis(), client=RedisElements, contract=forbid(*SET_ANOMALIES))
def test_redis(settings: Settings) -> Generator:
    """No acknowledged element is missing from the set in the end."""
    return sets.traffic()
