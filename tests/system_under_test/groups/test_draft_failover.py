"""The coordinator of a group of the draft dies exactly at each of the five points of a rebalance.

It is made to hold at the point's event, and killed while it holds. The next coordinator does what the design says. No
generation is given twice, and no partition has two owners in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from assay.cluster.sim.node import SimNode
from assay.system_under_test.client.admin import Admin
from assay.system_under_test.client.draft_membership import DraftMemberState
from assay.system_under_test.deployment import HOLD_FILE, Broker
from assay.system_under_test.network.connection import CallError
from assay.system_under_test.protocol.draft_groups import DraftHeartbeatRequest
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.group_offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic

from helpers.draft_client import PARTITIONS, Reader, check_ownership, coordinating, fill, quiet, read, said_by_brokers
from helpers.group_client import PATIENCE, RETRIED, ask, coordinator
from helpers.sim_brokers import Brokers, brokers, simulate, until

pytestmark = pytest.mark.slow

SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 20))]
"""Odd ones add partitions, even ones have a member that sleeps, where the expected outcome depends on it."""
SESSION = 2.0


class Scene:
    """A quiet group of three, and its coordinator."""

    def __init__(self, cluster: Brokers, readers: list[Reader], node: SimNode) -> None:
        self.cluster = cluster
        self.readers = readers
        self.node = node
        self.generation = readers[0].generation
        self.ids = {reader: _id(reader) for reader in readers}

    async def hold_at(self, event: str) -> None:
        await self.node.write_file(HOLD_FILE, f"{event} g\n".encode())

    async def held_at(self, event: str) -> None:
        process = self.node._process
        assert process is not None
        await until(lambda: process.stopped, f"the coordinator holds at {event}", 30)
        names = [e["event"] for e in self.cluster.events(self.node, event)]
        assert names, f"it stopped somewhere else than at {event}"
        await self.node.write_file(HOLD_FILE, b"")

    async def add_partitions(self) -> None:
        admin = Admin(self.cluster.bootstrap, runtime=self.cluster.cluster.harness_runtime())
        self.cluster._open.append(admin)
        await admin.create_partitions("orders", PARTITIONS + 2)

    async def call(self, request: Any, version: int = 0) -> Any:
        """The answer of a coordinator that is ready."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while loop.time() < deadline:
            try:
                answer = await ask(await coordinator(self.cluster), request, version, 2.0)
            except CallError:
                continue
            code = getattr(answer, "error_code", None)
            if code is None:
                code = answer.topics[0].partitions[0].error_code
            if code not in RETRIED:
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"no broker answers {request}")

    async def heartbeat(self, reader: Reader, generation: int) -> ErrorCode:
        request = DraftHeartbeatRequest(group_id="g", generation_id=generation, consumer_id=self.ids[reader])
        return ErrorCode((await self.call(request)).error_code)

    async def commit(self, reader: Reader, generation: int) -> ErrorCode:
        offset = OffsetCommitPartition(partition=0, offset=0, metadata="zombie")
        request = OffsetCommitRequest(
            group_id="g",
            generation_id=generation,
            member_id=self.ids[reader],
            retention_time_ms=-1,
            topics=[OffsetCommitTopic(topic="orders", partitions=[offset])],
        )
        return ErrorCode((await self.call(request, 2)).topics[0].partitions[0].error_code)

    def generations(self) -> list[int]:
        return sorted(said_by_brokers(self.cluster))


def _id(reader: Reader) -> str:
    generation = reader.consumer._draft.generation
    assert generation is not None
    return generation.member_id


def play(seed: int, act: Callable[[Scene], Awaitable[None]]) -> None:
    """Whatever happens, all is read in the end and each generation had one owner for each partition."""

    async def check() -> None:
        async with brokers(Broker(partitions=PARTITIONS), seed=seed) as cluster:
            wanted = await fill(cluster, "first")
            readers = [Reader(cluster, session_timeout=SESSION) for _ in range(3)]
            await quiet(*readers)
            await act(Scene(cluster, readers, await coordinating(cluster)))
            wanted |= await fill(cluster, "second")
            await quiet(*readers)
            await until(lambda: read(*readers) >= wanted, "all is read", 60)
            check_ownership(cluster, *readers)
            for reader in readers:
                await reader.stop()

    simulate(check, seed)


async def die_while_one_sleeps(scene: Scene, event: str) -> None:
    """Lets a member be taken for dead, so that the group prepares. It wakes up when the coordinator is gone."""
    await scene.hold_at(event)
    await scene.readers[0].fall_silent()
    await scene.held_at(event)
    scene.readers[0].wake()
    await scene.node.kill()


async def die_as_partitions_are_added(scene: Scene, event: str) -> None:
    await scene.hold_at(event)
    await scene.add_partitions()
    await scene.held_at(event)
    await scene.node.kill()


@pytest.mark.parametrize("seed", SEEDS)
def test_point_1_noticed_there_is_a_rebalance_only_if_something_really_differs(seed: int) -> None:
    async def act(scene: Scene) -> None:
        if seed % 2:
            await die_as_partitions_are_added(scene, "draft-change")
            await until(lambda: scene.generations()[-1] > scene.generation, "a new round", 60)
        else:
            for reader in scene.readers:
                reader.states.clear()
            await die_while_one_sleeps(scene, "draft-change")
            await quiet(*scene.readers)
            assert scene.generations()[-1] == scene.generation
            assert all(DraftMemberState.STOPPED not in reader.states for reader in scene.readers)

    play(seed, act)


@pytest.mark.parametrize("seed", SEEDS)
def test_point_2_notified_there_is_a_rebalance_only_if_something_really_differs(seed: int) -> None:
    async def act(scene: Scene) -> None:
        for reader in scene.readers:
            reader.states.clear()
        if seed % 2:
            await die_as_partitions_are_added(scene, "draft-notified")
            await until(lambda: scene.generations()[-1] > scene.generation, "a new round", 60)
        else:
            await die_while_one_sleeps(scene, "draft-notified")
            await quiet(*scene.readers)
            assert scene.generations()[-1] == scene.generation
            stopped = [reader for reader in scene.readers if DraftMemberState.STOPPED in reader.states]
            assert len(stopped) == 1, "one of them was stopped, and then went on"
            assert stopped[0].states[-2:] == [DraftMemberState.STOPPED, DraftMemberState.MEMBER]

    play(seed, act)


@pytest.mark.parametrize("seed", SEEDS)
def test_point_3_joined_there_is_a_new_round(seed: int) -> None:
    async def act(scene: Scene) -> None:
        die = die_as_partitions_are_added if seed % 2 else die_while_one_sleeps
        await die(scene, "draft-joined")
        await until(lambda: scene.generations()[-1] == scene.generation + 1, "the next generation", 60)

    play(seed, act)


@pytest.mark.parametrize("seed", SEEDS)
def test_point_4_written_the_old_generation_is_illegal(seed: int) -> None:
    async def act(scene: Scene) -> None:
        await scene.hold_at("draft-generation")
        if seed % 2:
            await scene.add_partitions()
        else:
            await scene.readers[0].fall_silent()
        await scene.held_at("draft-generation")
        old, written = scene.generation, scene.generation + 1
        assert scene.generations()[-1] == written
        for reader in scene.readers[1 - seed % 2 :]:
            await reader.fall_silent()  # so that none has joined yet when the old generation is tried
        await scene.node.kill()
        assert await scene.commit(scene.readers[1], old) == ErrorCode.ILLEGAL_GENERATION
        assert await scene.heartbeat(scene.readers[1], old) == ErrorCode.ILLEGAL_GENERATION
        assert scene.generations()[-1] == written
        for reader in scene.readers:
            reader.wake()
        await until(lambda: scene.generations()[-1] > written, "the round after it", 60)
        assert all(number != written for reader in scene.readers for number, _, _ in reader.owned)

    play(seed, act)


@pytest.mark.parametrize("seed", SEEDS)
def test_point_5_answered_the_new_generation_is_legal_until_a_consumer_joins(seed: int) -> None:
    async def act(scene: Scene) -> None:
        answered = scene.generation + 1
        await scene.hold_at("draft-answered")
        await scene.add_partitions()
        await scene.held_at("draft-answered")
        await until(lambda: any(reader.member_of == answered for reader in scene.readers), "one was answered", 5)
        members = [reader for reader in scene.readers if reader.member_of == answered]
        waiting = [reader for reader in scene.readers if reader.member_of != answered]
        assert len(members) == 1
        for reader in waiting:
            await reader.fall_silent()
        members[0].states.clear()
        await scene.node.kill()
        scene.ids[members[0]] = _id(members[0])
        assert await scene.heartbeat(members[0], answered) == ErrorCode.NONE
        assert await scene.heartbeat(waiting[0], scene.generation) == ErrorCode.ILLEGAL_GENERATION
        assert scene.generations()[-1] == answered
        for reader in waiting:
            reader.wake()
        await until(lambda: scene.generations()[-1] > answered, "the round after it", 60)
        assert members[0].states[:1] == [DraftMemberState.REDISCOVERING]

    play(seed, act)
