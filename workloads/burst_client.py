"""Drives the log with an asynchronous producer: bursts of message sets, of which several are under way at a time.

========  ==================================  ====================================================================
f         argument                            result
========  ==================================  ====================================================================
``burst`` list of values, a message set each  ``{"sets": [{"outcome", "offset", "node", "error"}, ...]}``, one for
                                              each value; offset, node and error are null where there is none
========  ==================================  ====================================================================

The sets of a burst go to one partition, a little time apart, and none waits for the outcome of the one before. Those
that are acknowledged must lie in the log in the order in which they were sent. A burst is ``ok`` where any of them is
acknowledged, ``fail`` where all certainly failed; each set has an outcome of its own, too. All other operations
are those of ``assay.workloads.log_operations``.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.async_producer import AsyncProducer
from assay.system_under_test.client.config import AsyncProducerConfig
from assay.system_under_test.client.delivery import SendResult
from assay.system_under_test.client.errors import ClientError, SendFailed
from assay.system_under_test.client.producer import ENTRY_OVERHEAD
from assay.system_under_test.client.traits import client_traits
from assay.workloads.log_client import SEND_SECONDS, LogClient
from assay.workloads.log_names import described, node_name, split

BURST: Final = "burst"
SHORTEST: Final = 4
LONGEST: Final = 10
PACE: Final = 0.01
"""Seconds between two sets of a burst: shorter than the producer waits before it sends one again."""


def bursts(keys: Sequence[str]) -> Generator:
    """Bursts of fresh values to partitions by chance, for ever."""

    def step(following: int, context: Context) -> tuple[Operation, int]:
        count = SHORTEST + context.below(LONGEST - SHORTEST + 1, salt=1)
        return Operation(
            BURST, context.choose(keys, salt=2), list(range(following, following + count))
        ), following + count

    return unfold(step, 0)


class BurstClient(LogClient):
    """Operations as above."""

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        await super().open(endpoint, runtime)
        self._asynchronous = AsyncProducer(
            list(endpoint.all),
            AsyncProducerConfig(timeout=SEND_SECONDS, linger=0.0, batch_size=1),  # a set for each message
            runtime=runtime,
            traits=client_traits(endpoint.defects),
        )

    async def close(self) -> None:
        await self._asynchronous.close(0.0)
        await super().close()

    async def invoke(self, operation: Operation) -> Completion:
        if operation.f != BURST:
            return await super().invoke(operation)
        assert operation.key is not None, "a burst to no partition"
        topic, partition = split(operation.key)
        under_way: list[asyncio.Future[SendResult]] = []
        for value in operation.argument:
            if under_way:
                await asyncio.sleep(PACE)
            under_way.append(await self._asynchronous.send(topic, str(value).encode(), partition=partition))
        sets = [_known(found) for found in await asyncio.gather(*under_way, return_exceptions=True)]
        outcomes = {one["outcome"] for one in sets}
        whole = next(one for one in (Outcome.OK, Outcome.INFO, Outcome.FAIL) if one in outcomes)
        error = next((one["error"] for one in sets if one["error"]), None)
        return Completion(whole, {"sets": sets}, error=None if whole is Outcome.OK else error)

    @classmethod
    def effects(cls, completed: Completed) -> Sequence[Effect]:
        """A row for each set, also where the fate of all of them is unknown."""
        operation = completed.operation
        if operation.f != BURST:
            return super().effects(completed)
        assert operation.key is not None
        result = completed.completion.result
        sets = [_UNKNOWN] * len(operation.argument) if result is None else result["sets"]
        return [
            Effect(
                "append",
                operation.key,
                position=one["offset"],
                value=value,
                size=ENTRY_OVERHEAD + len(str(value)),
                node=one["node"],
                outcome=Outcome(one["outcome"]),
                error=one["error"],
            )
            for value, one in zip(operation.argument, sets, strict=True)
        ]


_UNKNOWN: Final = {"outcome": Outcome.INFO, "offset": None, "node": None, "error": "timeout"}


def _known(found: SendResult | BaseException) -> dict[str, Any]:
    if isinstance(found, SendResult):
        return {"outcome": Outcome.OK, "offset": found.base_offset, "node": node_name(found.node), "error": None}
    if not isinstance(found, ClientError):
        raise found
    outcome = Outcome.FAIL if isinstance(found, SendFailed) else Outcome.INFO
    return {"outcome": outcome, "offset": None, "node": None, "error": described(found)}
