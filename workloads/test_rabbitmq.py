"""Delivery by RabbitMQ 3.10: are all confirmed messages delivered? In Docker; nodes install it from Debian.

pytest workloads/test_rabbitmq.py --rate=100 --nemesis=kill --nemesis=partition
pytest workloads/test_rabbitmq.py -k mirrored --rate=100 --nemesis=partition-isolate-leader --nemesis-interval=30

A quorum queue confirms a message once a majority has written it. A mirrored queue confirms a message once all mirrors
known to the leader have it. In a partition each side knows only its own mirrors, and afterwards the messages of one
side are discarded. ``--set=partition-handling=`` takes ``autoheal`` or ``pause_minority``. With the default,
``ignore``, both sides continue until an operator restarts one of them.
"""

import asyncio
from contextlib import suppress

from pamqp.commands import Basic

from assay import Completion, Endpoint, Generator, Operation, Outcome, Settings, experiment
from assay.workloads.generic import queues
from assay.workloads.systems.rabbitmq import (
    MIRRORED,
    QUORUM,
    SECONDS,
    TROUBLE,
    RabbitMQ,
    connect,
    is_cancelled,
)


class RabbitElements(queues.QueueClient):
    """Client of the server at its endpoint. It acknowledges each element at once. Lost deliveries are redelivered.

    The client connects again after an error, because a late answer would close its channel.
    """

    async def open(self, endpoint: Endpoint, runtime: object) -> None:
        self.address = endpoint.address
        await self.connect()

    async def connect(self) -> None:
        self.connection = await connect(self.address)
        self.channel = await self.connection.channel()

    async def invoke(self, operation: Operation) -> Completion:
        queue, taken = str(operation.key), list[int]()
        try:
            async with asyncio.timeout(SECONDS):
                if self.channel.is_closed:
                    await self.connect()
                if operation.f == queues.ENQUEUE:
                    body, kept = b"%d" % operation.argument, Basic.Properties(delivery_mode=2)
                    await self.channel.basic_publish(body, routing_key=queue, properties=kept, mandatory=True)
                while operation.f != queues.ENQUEUE:
                    found = await self.channel.basic_get(queue)
                    if found.delivery_tag is None:
                        break
                    taken.append(int(found.body))
                    await self.channel.basic_ack(found.delivery_tag)
                    if operation.f == queues.DEQUEUE:
                        break
            return Completion(Outcome.OK, taken)
        except (*TROUBLE, asyncio.CancelledError) as error:
            if is_cancelled():  # by the harness; the library also raises CancelledError if a connection is lost
                raise
            await self.close()
            # An element whose delivery was not acknowledged is delivered again.
            certain = operation.f == queues.DEQUEUE and not taken
            return Completion(Outcome.FAIL if certain else Outcome.INFO, taken, error=type(error).__name__)

    async def close(self) -> None:
        with suppress(*TROUBLE):
            async with asyncio.timeout(1):
                await self.connection.close()


@experiment(system=RabbitMQ(), client=RabbitElements, contract=queues.build_contract())
def test_quorum(settings: Settings) -> Generator:
    """Each confirmed element is taken by some client, from a queue that a majority replicates."""
    return queues.traffic(QUORUM)


@experiment(system=RabbitMQ(), client=RabbitElements, contract=queues.build_contract())
def test_mirrored(settings: Settings) -> Generator:
    """Each confirmed element is taken by some client, from a queue with a mirror on each node."""
    return queues.traffic(MIRRORED)
