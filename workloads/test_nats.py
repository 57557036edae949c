"""NATS JetStream 2.9: is a message that was acknowledged still in its stream? In Docker; nodes install it from Debian.

pytest workloads/test_nats.py --rate=200 --nemesis=kill
pytest workloads/test_nats.py --rate=200 --nemesis=power-loss --nemesis-target=all

A server acknowledges what a majority has, and has its disk keep it later: every two minutes, by default. So what was
acknowledged survives that processes die, and not that all servers lose their power
(https://jepsen.io/analyses/nats-2.12.1). That a consumer reads what has been acknowledged, or what another consumer has
read, is not promised (https://github.com/nats-io/nats-architecture-and-design/pull/358).
"""

from nats.js.errors import NotFoundError

from assay import SET_ANOMALIES, Completion, Endpoint, Generator, Operation, Outcome, Settings, experiment, forbid
from assay.workloads.generic import sets
from assay.workloads.systems.nats import TROUBLE, JetStream, connect


class Elements(sets.SetClient):
    """Publishes to its own server, and reads the stream from its first message to its last."""

    async def open(self, endpoint: Endpoint, runtime: object) -> None:
        self.client = await connect(endpoint.address)
        self.stream = self.client.jetstream(timeout=2)

    async def invoke(self, operation: Operation) -> Completion:
        try:
            if operation.f == sets.ADD:
                await self.stream.publish(sets.KEY, b"%d" % operation.argument)
                return Completion(Outcome.OK)
            return Completion(Outcome.OK, await self._read())
        except TROUBLE as error:  # also of a read: a connection that is gone must be followed by another one
            return Completion(Outcome.INFO, error=type(error).__name__)

    async def _read(self) -> list[int]:
        elements: list[int] = []
        try:
            lacking = (await self.stream.stream_info(sets.KEY)).state.messages
        except NotFoundError:
            return elements  # the stream is lost as well
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


@experiment(system=JetStream(), client=Elements, contract=PROMISED)
def test_nats(settings: Settings) -> Generator:
    """No message that was acknowledged is missing from the stream in the end."""
    return sets.traffic()
