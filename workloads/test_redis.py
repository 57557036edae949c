"""Redis with Sentinel: is an element that was acknowledged still there? In Docker; nodes install it from Debian.

pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20
pytest workloads/test_redis.py --nemesis=partition-isolate-leader --nemesis-interval=20 --set=min-replicas-to-write=1

A primary that is cut off goes on acknowledging, and forgets that when it becomes a replica of the one that the
sentinels chose meanwhile. ``min-replicas-to-write`` makes it refuse, after ``min-replicas-max-lag``, so some are lost
even then: Redis promises none of it (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from assay import SET_ANOMALIES, Completion, Endpoint, Generator, Operation, Outcome, Settings, experiment, forbid
from assay.workloads.generic import sets
from assay.workloads.systems.redis import Redis, leader
from assay.workloads.systems.resp import ask, converse


class Elements(sets.SetClient):
    """Asks its own server, if that says that it is the primary; else whom the sentinels name."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        self.sentinels = endpoint.roles["sentinel"]
        role = await ask(endpoint.address, "ROLE")
        self.primary = endpoint.address if role[0] == "master" else await leader(self.sentinels)

    async def invoke(self, operation: Operation) -> Completion:
        try:
            if operation.f == sets.ADD:
                return Completion(Outcome.OK, await ask(self.primary, "SADD", sets.KEY, operation.argument))
            return Completion(Outcome.OK, sorted(map(int, await self._read())))
        except ValueError as error:  # READONLY, NOREPLICAS, LOADING: not done
            if str(error).startswith("READONLY"):
                with suppress(OSError):  # no sentinel answers: the next operation asks again
                    self.primary = await leader(self.sentinels)
            return Completion(Outcome.FAIL, error=str(error).split()[0])
        except (OSError, EOFError) as error:
            return Completion(Outcome.INFO, error=type(error).__name__)

    async def _read(self) -> Sequence[str]:
        """A primary that was replaced answers reads as a replica, from what it has by then, and does not say so."""
        elements, role = await converse(self.primary, ("SMEMBERS", sets.KEY), ("ROLE",))
        for said in (elements, role):
            if isinstance(said, ValueError):
                raise said
        if role[0] != "master":
            raise ValueError(f"READONLY its role is {role[0]}")
        answered: Sequence[str] = elements
        return answered

    async def close(self) -> None:
        """Each command has a connection of its own."""


@experiment(system=Redis(), client=Elements, contract=forbid(*SET_ANOMALIES))
def test_redis(settings: Settings) -> Generator:
    """No element that was acknowledged is missing from the set in the end."""
    return sets.traffic()
