"""The workload of RabbitMQ: what is published, taken, acknowledged; what becomes of errors; on a queue made up."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from aiormq.exceptions import AMQPConnectionError, ChannelInvalidStateError, DeliveryError

from assay.harness.core.operation import Completion, Operation, Outcome
from assay.workloads import test_rabbitmq as rabbitmq_test
from assay.workloads.generic import queues
from assay.workloads.systems import rabbitmq


class Channel:
    """A queue. ``trouble`` by the name of a method: what it raises, after having done what it does."""

    is_closed = False

    def __init__(self, *elements: int, **trouble: BaseException) -> None:
        self.elements, self.acknowledged, self._trouble = list(elements), list[int](), trouble

    def _ends(self, method: str) -> None:
        if method in self._trouble:
            raise self._trouble[method]

    async def basic_publish(self, body: bytes, *, routing_key: str, properties: Any, mandatory: bool) -> None:
        assert (routing_key, properties.delivery_mode, mandatory) == ("quorum", 2, True)
        self.elements.append(int(body))
        self._ends("basic_publish")

    async def basic_get(self, queue: str) -> Any:
        self._ends("basic_get")
        if not self.elements:
            return SimpleNamespace(delivery_tag=None, body=b"")
        element = self.elements.pop(0)
        return SimpleNamespace(delivery_tag=element, body=b"%d" % element)

    async def basic_ack(self, tag: int) -> None:
        self.acknowledged.append(tag)
        self._ends("basic_ack")


class Connection:
    """Its channel, which is closed with it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def channel(self) -> Channel:
        return self._channel

    async def close(self) -> None:
        self._channel.is_closed = True


def asked(channel: Channel, f: str, argument: int | None = None) -> Completion:
    client: Any = rabbitmq_test.RabbitElements()
    client.channel, client.connection = channel, Connection(channel)
    completion: Completion = asyncio.run(client.invoke(Operation(f, rabbitmq_test.QUORUM, argument)))
    return completion


def test_what_is_taken_is_acknowledged() -> None:
    channel = Channel(3, 4, 6)
    assert asked(channel, queues.ENQUEUE, 8).outcome is Outcome.OK
    assert asked(channel, queues.DEQUEUE) == Completion(Outcome.OK, [3])
    assert channel.acknowledged == [3]
    assert asked(channel, queues.DRAIN) == Completion(Outcome.OK, [4, 6, 8])
    assert channel.acknowledged == [3, 4, 6, 8]
    assert asked(channel, queues.DEQUEUE) == asked(channel, queues.DRAIN) == Completion(Outcome.OK, [])


GONE = AMQPConnectionError()


@pytest.mark.parametrize("trouble", [GONE, DeliveryError(None, None), ChannelInvalidStateError(), TimeoutError()])
def test_a_publication_without_a_confirmation_may_have_been_done(trouble: Exception) -> None:
    completion = asked(Channel(basic_publish=trouble), queues.ENQUEUE, 8)
    assert (completion.outcome, completion.error) == (Outcome.INFO, type(trouble).__name__)


@pytest.mark.parametrize("f", [queues.DEQUEUE, queues.DRAIN])
def test_a_take_that_breaks_off_says_what_it_has_taken(f: str) -> None:
    def broken(taken: list[int]) -> Completion:
        return Completion(Outcome.INFO, taken, "AMQPConnectionError")

    assert asked(Channel(3, 4, basic_ack=GONE), f) == Completion(Outcome.INFO, [3], type(GONE).__name__)
    nothing = Outcome.FAIL if f == queues.DEQUEUE else Outcome.INFO  # what was not acknowledged is delivered again
    assert asked(Channel(3, 4, basic_get=GONE), f) == Completion(nothing, [], type(GONE).__name__)


def test_a_client_connects_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late answer would end its channel."""
    channels = [Channel(3, basic_get=TimeoutError()), Channel(5)]

    async def connect(address: str) -> Connection:
        return Connection(channels.pop(0))

    async def run() -> list[Completion]:
        client: Any = rabbitmq_test.RabbitElements()
        await client.open(SimpleNamespace(address="198.18.0.11:5672"), None)
        return [await client.invoke(Operation(queues.DEQUEUE, rabbitmq_test.QUORUM)) for _ in range(2)]

    monkeypatch.setattr(rabbitmq_test, "connect", connect)
    assert asyncio.run(run()) == [Completion(Outcome.FAIL, [], "TimeoutError"), Completion(Outcome.OK, [5])]


def test_a_cancellation_by_the_library_ends_the_operation_alone() -> None:
    cancelled = asyncio.CancelledError()
    assert asked(Channel(3, basic_get=cancelled), queues.DEQUEUE).outcome is Outcome.FAIL
    assert asked(Channel(basic_publish=cancelled), queues.ENQUEUE, 8).outcome is Outcome.INFO


def test_a_cancellation_by_the_tester_goes_on() -> None:
    class Waiting(Channel):
        async def basic_get(self, queue: str) -> Any:
            await asyncio.Event().wait()

    async def run() -> None:
        client: Any = rabbitmq_test.RabbitElements()
        client.channel = Waiting()
        task = asyncio.create_task(client.invoke(Operation(queues.DEQUEUE, rabbitmq_test.QUORUM)))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_nodes_know_each_other_and_what_a_partition_means() -> None:
    nodes = [SimpleNamespace(name=f"n{number}", address=f"198.18.0.{10 + number}") for number in (1, 2, 3)]
    system: Any = rabbitmq.RabbitMQ().with_setting("partition-handling", "autoheal")
    files = system.files(nodes[1], SimpleNamespace(nodes=nodes))
    assert "cluster_partition_handling = autoheal" in files[f"{rabbitmq.CONFIG}.conf"].decode()
    assert all(f"rabbit@{node.address}" in files[f"{rabbitmq.CONFIG}.conf"].decode() for node in nodes)
    assert json.loads(files[f"{rabbitmq.CONFIG}.json"])["policies"][0]["pattern"] == rabbitmq_test.MIRRORED
    assert "rabbit@198.18.0.12" in system.argv(nodes[1])[-1]
    with pytest.raises(ValueError, match="rabbitmq has no setting heartbeat here; it has partition-handling"):
        system.with_setting("heartbeat", "1")
