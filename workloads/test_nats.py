"""Durability of messages in NATS JetStream 2.9: are acknowledged messages in the stream in the end?

pytest workloads/test_nats.py --rate=200 --nemesis=kill
pytest workloads/test_nats.py --rate=200 --nemesis=power-loss --nemesis-target=all

The system runs in Docker, and the nodes install it from Debian. A server acknowledges a message once a majority has it,
but calls fsync only later: every two minutes by default. So acknowledged messages survive the death of processes, but
not a power loss on all servers (https://jepsen.io/analyses/nats-2.12.1). JetStream does not promise that a consumer
sees at once all acknowledged messages, or all messages that another consumer saw
(https://github.com/nats-io/nats-architecture-and-design/pull/358).
"""

from nats.js.errors import NotFoundError

from assay import SET_ANOMALIES, Completion, Endpoint, Generator, Operation, Outcome, Settings, experiment, forbid
from assay.workloads.generic import sets
from assay.workloads.systems.nats import TROUBLE, JetStream, connect


class NatsElements(sets.SetClient):
    """Publishes to the server at its endpoint, and reads the stream from its first message to its last."""

    async def open(self, endpoint: Endpoint, runtime: object) -> None:
        self.client = await connect(endpoint.address)
        self.stream = self.client.jetstream(timeout=2)

    async def invoke(self, operation: Operation) -> Completion:
        try:
            if operation.f == sets.ADD:
                await self.stream.publish(sets.KEY, b"%d" % operation.argument)
                return Completion(Outcome.OK)
            return Completion(Outcome.OK, await self._read())
        except TROUBLE as error:  # Reads are info, too: after a lost connection the harness must open a new client.
            return Completion(Outcome.INFO, error=type(error).__name__)

    async def _read(self) -> list[int]:
        elements: list[int] = []
        try:
            lacking = (await self.stream.stream_info(sets.KEY)).state.messages
        except NotFoundError:
            return elements  # the stream itself was lost
        messages = await self.stream.subscribe(sets.KEY, ordered_consumer=True)
        while lacking:
            message = await messages.next_msg(timeout=2)
            elements.append(int(message.data))
            lacking = message.metadata.num_pending
        await messages.unsubscribe()
        return elements

    async def close(self) -> None:
        await self.client.close()


LAGS = "a reader is served by one replica, which may lag behind the others, and behind what another reader has seen"
PROMISED = forbid(*SET_ANOMALIES).tolerate("set-stale", "set-vanished", because=LAGS)


@experiment(system=JetStream(), client=NatsElements, contract=PROMISED)
def test_nats(settings: Settings) -> Generator:
    """No acknowledged message is missing from the stream in the end."""
    return sets.traffic()
