"""Consumers of the draft as tests need them, and the ownership that brokers and consumers report.

Each consumer reads and commits, and writes down its partitions and states.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.config import DraftConfig
from assay.system_under_test.client.coordinated import CommitFailed, JoinFailed
from assay.system_under_test.client.draft_consumer import DraftConsumer
from assay.system_under_test.client.draft_membership import DraftMemberState
from assay.system_under_test.client.errors import ReadFailed, SendFailed, SendUnknown
from assay.system_under_test.client.group_consumer import Callback, ConsumerRecord, GroupListener, ignore
from assay.system_under_test.deployment import Broker

from helpers.group_client import coordinator
from helpers.sim_brokers import Brokers, brokers, until

PARTITIONS = 4
Owned = dict[int, dict[str, set[str]]]
"""By generation and consumer."""


class Reader:
    """Polls and commits until it is stopped, and writes down what it owned in which generation."""

    def __init__(self, cluster: Brokers, on_revoked: Callback = ignore, **settings: Any) -> None:
        self.states: list[DraftMemberState] = []
        self.owned: list[tuple[int, str, set[str]]] = []
        self.records: list[ConsumerRecord] = []
        self.consumer = DraftConsumer(
            cluster.bootstrap,
            "g",
            ["orders"],
            DraftConfig(**({"session_timeout": 2.0} | settings)),
            runtime=cluster.cluster.harness_runtime(),
            listener=GroupListener(self._assigned, on_revoked),
            on_state=self.states.append,
        )
        cluster._open.append(self.consumer)
        self._task = asyncio.get_running_loop().create_task(self._read())

    def _assigned(self, partitions: Sequence[tuple[str, int]]) -> None:
        generation = self.consumer.generation
        assert generation is not None
        assert tuple(partitions) == generation.partitions
        names = {f"{topic}-{index}" for topic, index in partitions}
        self.owned.append((generation.number, generation.member_id, names))

    async def _read(self) -> None:
        while True:
            try:
                self.records += await self.consumer.poll(0.3)
                await self.consumer.commit()
            except (CommitFailed, ReadFailed, JoinFailed):
                await asyncio.sleep(0.1)

    @property
    def generation(self) -> int:
        return -1 if self.consumer.generation is None else self.consumer.generation.number

    @property
    def member_of(self) -> int:
        """The generation that it was in last, whether or not it knows where to begin to read."""
        generation = self.consumer._draft.generation
        return -1 if generation is None else generation.number

    async def fall_silent(self) -> None:
        """Sends nothing more, and does not know that time goes by."""
        await self.stop()
        await self.consumer._draft._stop_heartbeats()

    def wake(self) -> None:
        draft = self.consumer._draft
        loop = asyncio.get_running_loop()
        if draft.generation is not None:
            draft._beating = loop.create_task(draft._send_heartbeats(draft.generation))
        self.read_on()

    def read_on(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def die(self) -> None:
        await self.stop()
        await self.consumer.close(leave=False)


async def fill(cluster: Brokers, word: str, count: int = 10) -> set[bytes | None]:
    """Each at least once."""
    values: set[bytes | None] = set()
    for partition in range(PARTITIONS):
        records = [(None, f"{word}-{partition}-{number}".encode()) for number in range(count)]
        while True:
            try:
                await cluster.producer.send("orders", partition, records)
                break
            except (SendFailed, SendUnknown):
                await asyncio.sleep(0.2)
        values |= {value for _, value in records}
    return values


def read(*readers: Reader) -> set[bytes | None]:
    return {record.value for reader in readers for record in reader.records}


def together(*readers: Reader) -> Callable[[], bool]:
    """All are members of one generation, and own all between them."""

    def check() -> bool:
        generations = {reader.generation for reader in readers}
        owned = [p for r in readers if r.consumer.generation is not None for p in r.consumer.generation.partitions]
        states = {reader.consumer.state for reader in readers}
        return (
            len(generations) == 1
            and -1 not in generations
            and states == {DraftMemberState.MEMBER}
            and sorted(owned) == [("orders", index) for index in range(len(owned))]
            and len(owned) >= PARTITIONS
        )

    return check


async def quiet(*readers: Reader) -> None:
    """They have been together for a while."""
    while True:
        await until(together(*readers), "all are in one generation", 60)
        before = readers[0].generation
        await asyncio.sleep(3.0)
        if together(*readers)() and readers[0].generation == before:
            return


def said_by_brokers(cluster: Brokers) -> Owned:
    """Returns what each generation gave to whom. No generation is given twice, and none is left out."""
    found: Owned = {}
    for node in cluster.nodes:
        for event in cluster.events(node, "draft-generation"):
            assert event["epoch"] not in found, f"generation {event['epoch']} was given twice"
            found[event["epoch"]] = {name: set(owned) for name, owned in event["detail"]["owned"].items()}
    return found


def check_ownership(cluster: Brokers, *readers: Reader) -> None:
    given = said_by_brokers(cluster)
    assert sorted(given) == list(range(1, len(given) + 1)), "generations rise by one"
    for generation, owners in given.items():
        names = [name for owned in owners.values() for name in owned]
        assert len(names) == len(set(names)), f"generation {generation}: {owners}"
    taken: dict[int, dict[str, str]] = defaultdict(dict)
    for reader in readers:
        numbers = [number for number, _, _ in reader.owned]
        assert numbers == sorted(numbers)
        for number, consumer_id, owned in reader.owned:
            assert owned == given[number][consumer_id]
            for name in owned:
                assert taken[number].setdefault(name, consumer_id) == consumer_id


async def coordinating(cluster: Brokers) -> SimNode:
    address = await coordinator(cluster)
    return next(node for node in cluster.nodes if node.address == address)


async def with_readers(count: int, seed: int, act: Callable[[Brokers, list[Reader]], Awaitable[list[Reader]]]) -> None:
    """``act`` says who lives on."""
    async with brokers(Broker(partitions=PARTITIONS), seed=seed) as cluster:
        wanted = await fill(cluster, "first")
        readers = [Reader(cluster) for _ in range(count)]
        await quiet(*readers)
        before = readers[0].generation
        living = await act(cluster, readers)
        wanted |= await fill(cluster, "second")
        await quiet(*living)
        await until(lambda: read(*readers) >= wanted, "all is read", 60)
        if len(living) < count:
            assert living[0].generation > before
        check_ownership(cluster, *readers)
        for reader in readers:
            await reader.stop()
