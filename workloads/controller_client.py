"""Drives topics through the brokers' admin client, and a log next to them; one client is one process of the history.

Operations besides those of ``assay.workloads.log_operations``, which go to the log that stays (``key`` is
``topic-partition`` there, a topic's name here):

============  ==========================  ==================================================
f             argument                    result
============  ==========================  ==================================================
``create``    ``{"partitions"}``          none
``delete``    none                        none
``describe``  none                        ``{"controller", "leaders": [of each partition]}``
``touch``     ``{"partition", "value"}``  ``{"offset", "node"}``
``move``      ``{"replicas"}``            none; ``key`` is ``topic-partition``
``elect``     none                        none; ``key`` is ``topic-partition``
============  ==========================  ==================================================

``touch`` appends one record to a topic that may be deleted at any time, so that its leaders have a term to show for:
that is a fact for the ownership checks, which read events, and none for the log checks, so it has no effects. Nor have
the others: what a change of a topic did to leaders and controllers is in the nodes' event logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from assay.harness.core.client import Endpoint
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome
from assay.system_under_test.client.admin import Admin, NewTopic, TopicOutcome
from assay.system_under_test.client.cluster_view import PartitionView
from assay.system_under_test.client.config import ProducerConfig
from assay.system_under_test.client.errors import Outcome as Certainty
from assay.system_under_test.client.errors import ReadFailed, SendFailed, SendUnknown
from assay.system_under_test.client.producer import Producer
from assay.workloads.log_client import LogClient, described, error_name, node_name

CREATE: Final = "create"
DELETE: Final = "delete"
DESCRIBE: Final = "describe"
TOUCH: Final = "touch"
CHURN: Final = (CREATE, DELETE, DESCRIBE, TOUCH)
MOVE: Final = "move"
ELECT: Final = "elect"
ADMIN: Final = (*CHURN, MOVE, ELECT)

REPLICATION: Final = 2
MIN_INSYNC: Final = 1
ADMIN_SECONDS: Final = 4.0
TOUCH_SECONDS: Final = 2.0
"""Short: most topics that cannot be written to are gone, and the library would ask again for ever."""


class ControllerClient:
    """Operations as above, and those on a log."""

    def __init__(self) -> None:
        self._log = LogClient()

    async def open(self, endpoint: Endpoint, runtime: Any) -> None:
        bootstrap = list(endpoint.all)
        await self._log.open(endpoint, runtime)
        self._admin = Admin(bootstrap, runtime=runtime, timeout=ADMIN_SECONDS)
        self._producer = Producer(bootstrap, ProducerConfig(timeout=TOUCH_SECONDS), runtime=runtime)

    async def close(self) -> None:
        await self._log.close()
        await self._admin.close()
        await self._producer.close()

    async def invoke(self, operation: Operation) -> Completion:
        if operation.f not in ADMIN:
            return await self._log.invoke(operation)
        assert operation.key is not None, f"{operation.f} without a topic"
        try:
            match operation.f:
                case "create":
                    return await self._create(operation.key, operation.argument["partitions"])
                case "delete":
                    return changed((await self._admin.delete_topics([operation.key]))[operation.key])
                case "describe":
                    return await self._describe(operation.key)
                case "move":
                    partition = partition_of(operation.key)
                    moves = {partition: operation.argument["replicas"]}
                    return changed((await self._admin.reassign(moves))[partition])
                case "elect":
                    partition = partition_of(operation.key)
                    return changed((await self._admin.elect_preferred([partition]))[partition])
                case _:
                    return await self._touch(operation.key, operation.argument)
        except (SendFailed, ReadFailed) as error:
            return Completion(Outcome.FAIL, error=described(error))
        except SendUnknown as error:
            return Completion(Outcome.INFO, error=described(error))

    async def _create(self, topic: str, partitions: int) -> Completion:
        wanted = NewTopic(topic, partitions, REPLICATION, configs={"min.insync.replicas": str(MIN_INSYNC)})
        return changed((await self._admin.create_topics([wanted]))[topic])

    async def _describe(self, topic: str) -> Completion:
        view = await self._admin.describe([topic])
        found = view.topics.get(topic)
        leaders = [] if found is None else [_leader(one) for one in found.partitions.values()]
        controller = None if view.controller is None else node_name(view.controller.id)
        return Completion(Outcome.OK, {"controller": controller, "leaders": leaders})

    async def _touch(self, topic: str, argument: dict[str, int]) -> Completion:
        result = await self._producer.send(topic, argument["partition"], [(None, str(argument["value"]).encode())])
        return Completion(Outcome.OK, {"offset": result.base_offset, "node": node_name(result.node)})

    @staticmethod
    def effects(completed: Completed) -> Sequence[Effect]:
        return () if completed.operation.f in ADMIN else LogClient.effects(completed)


def partition_of(key: str) -> tuple[str, int]:
    """``orders-0`` as the library has it."""
    topic, _, index = key.rpartition("-")
    return topic, int(index)


def _leader(partition: PartitionView) -> str | None:
    return None if partition.leader is None else node_name(partition.leader.id)


def changed(known: TopicOutcome) -> Completion:
    """A rejection is ``fail``; where it is unknown, the topic may come, or go, at any time later: ``info``."""
    if known.outcome is Certainty.DONE:
        return Completion(Outcome.OK)
    named = "no-answer" if known.error is None else error_name(known.error)
    error = named if known.message is None else f"{named}: {known.message}"
    return Completion(Outcome.FAIL if known.outcome is Certainty.NOT_DONE else Outcome.INFO, error=error)
