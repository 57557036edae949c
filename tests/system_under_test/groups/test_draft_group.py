"""A group of the draft keeps its invariants under all that its consumers do.

No consumer learns of a generation that is not stored, and generations rise by one. Each generation gives every
partition to exactly one consumer. Consumers that behave come to rest.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.group import DraftGroup, DraftState, JoinResult
from assay.system_under_test.groups.draft.metadata import CoordinatorDisplaced, GroupMetadata
from assay.system_under_test.groups.group import GroupError
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.zookeeper.znodes import Versioned

from helpers.examples import some_of

SESSION = 3.0


@dataclass
class Store:
    """A znode that takes ``delay`` seconds to be written; another broker has it once ``taken``."""

    epoch: int = 7
    delay: float = 0.05
    taken: bool = False
    written: list[GroupMetadata] = field(default_factory=list)

    async def write(self, group: str, metadata: GroupMetadata, version: int) -> int:
        await asyncio.sleep(self.delay)
        if self.taken:
            raise CoordinatorDisplaced(group)
        assert version == len(self.written) - 1
        self.written.append(metadata)
        return version + 1


@dataclass
class Scene:
    store: Store = field(default_factory=Store)
    partitions: dict[str, int] = field(default_factory=lambda: {"a": 3, "b": 1})
    displaced: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.group = self.make()

    def make(self) -> DraftGroup:
        loop = asyncio.get_running_loop()
        events = EventLog(lambda line: self.lines.append(json.loads(line)), lambda: None, (), loop.time, 1, 1)
        return DraftGroup("g", self.store, self._read_counts, events, self._spawn, self._displaced)

    async def _read_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        return {topic: self.partitions.get(topic, 0) for topic in sorted(topics)}

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    def _displaced(self) -> None:
        self.displaced += 1
        self.group.end(ErrorCode.NOT_COORDINATOR_FOR_GROUP)

    async def join(self, consumer_id: str, new_id: str, topics: Collection[str] = ("a",)) -> JoinResult:
        return await self.group.join(consumer_id, new_id, topics, "range", SESSION)

    def named(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    def check(self) -> None:
        failed = [task for task in self.tasks if task.done() and not task.cancelled() and task.exception() is not None]
        assert not failed
        assert [metadata.generation for metadata in self.store.written] == list(range(1, len(self.store.written) + 1))
        for metadata in self.store.written:
            given = sorted(
                (topic, index)
                for owned in metadata.assignment.values()
                for topic, indexes in owned.items()
                for index in indexes
            )
            wanted = {topic for consumer in metadata.consumers.values() for topic in consumer.topics}
            assert set(metadata.partitions) == wanted
            assert given == sorted((topic, i) for topic in wanted for i in range(metadata.partitions[topic]))


class Actor:
    """A consumer that behaves while it is awake: joins, heartbeats, joins again when it has to."""

    def __init__(self, scene: Scene, name: str, topics: Collection[str]) -> None:
        self.scene = scene
        self.name = name
        self.topics = topics
        self.consumer_id = ""
        self.generation = -1
        self.joins = 0
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        if self._task is None:
            self._task = self.scene._spawn(self._live(), self.name)

    def sleep(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _live(self) -> None:
        while True:
            try:
                if self.generation < 0:
                    self.joins += 1
                    joined = await self.scene.join(self.consumer_id, f"{self.name}{self.joins}", self.topics)
                    stored = self.scene.store.written[joined.generation - 1]
                    owned = stored.assignment[joined.consumer_id]
                    assert set(joined.partitions) == {(t, i) for t, indexes in owned.items() for i in indexes}
                    self.consumer_id, self.generation = joined.consumer_id, joined.generation
                    joined.on_response_written()
                else:
                    await asyncio.sleep(SESSION / 4)
                    on_response_written = self.scene.group.heartbeat(self.consumer_id, self.generation)
                    if on_response_written is not None:
                        on_response_written()
                        self.generation = -1
            except GroupError as error:
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.consumer_id = ""
                self.generation = -1
                await asyncio.sleep(0.1)


def run(test: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop(1)
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()


steps = st.lists(
    st.tuples(
        st.sampled_from(("wake", "sleep", "leave", "grow", "topics")),
        st.integers(0, 3),
        st.sampled_from((0.0, 0.02, 0.3, 2.0, 5.0)),
    ),
    max_size=25,
)


@settings(max_examples=some_of(60), deadline=None)
@example([("topics", consumer, 0.0) for consumer in (0, 1, 1, 2, 3, 3)])  # no consumer subscribes to "a"
@given(steps)
def test_with_members_that_come_go_and_sleep_the_group_comes_to_rest(plan: list[tuple[str, int, float]]) -> None:
    async def check() -> None:
        scene = Scene()
        actors = [Actor(scene, f"c{n}-", ("a", "b") if n % 2 else ("a",)) for n in range(4)]
        for what, whom, pause in plan:
            actor = actors[whom]
            if what == "wake":
                actor.wake()
            elif what == "sleep":
                actor.sleep()
            elif what == "leave" and actor.consumer_id in scene.group.consumers:
                scene.group.leave(actor.consumer_id)
            elif what == "topics":
                actor.topics = ("b",) if actor.topics == ("a",) else ("a",)
            elif what == "grow":
                scene.partitions["a"] += 1
                await scene.group.check_partition_counts()
            await asyncio.sleep(pause)
        for actor in actors:
            actor.wake()
        await asyncio.sleep(8 * SESSION)
        assert scene.group.state is DraftState.STEADY
        assert {actor.consumer_id for actor in actors} == set(scene.group.consumers)
        assert {actor.generation for actor in actors} == {scene.group.generation}
        assert scene.group.generation == len(scene.store.written)
        last = scene.store.written[-1]
        subscribed = {topic for consumer in last.consumers.values() for topic in consumer.topics}
        assert last.partitions == {topic: scene.partitions[topic] for topic in subscribed}
        scene.check()
        for actor in actors:
            actor.sleep()
        await asyncio.sleep(3 * SESSION)
        assert scene.group.empty

    run(check())


def test_a_displaced_coordinator_answers_no_one() -> None:
    async def check() -> None:
        scene = Scene()
        await scene.join("", "one")
        scene.store.taken = True
        with pytest.raises(GroupError) as refused:
            await scene.join("", "two")  # while one says nothing
        assert refused.value.code is ErrorCode.NOT_COORDINATOR_FOR_GROUP
        assert scene.displaced == 1
        assert scene.group.generation == 1

    run(check())


def test_a_commit_counts_in_its_generation_only_and_not_while_the_next_is_written() -> None:
    async def check() -> None:
        scene = Scene()
        scene.group.check_commit("", -1)
        await scene.join("", "one")
        scene.group.check_commit("one", 1)
        assert _code(scene, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert _code(scene, "one", 0) is ErrorCode.ILLEGAL_GENERATION
        two = asyncio.ensure_future(scene.join("", "two"))
        await asyncio.sleep(0)
        scene.group.check_commit("one", 1)  # it had to stop, and commits before it joins
        one = asyncio.ensure_future(scene.join("one", "?"))
        await asyncio.sleep(0)
        assert _code(scene, "one", 1) is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.gather(one, two)
        assert _code(scene, "one", 1) is ErrorCode.ILLEGAL_GENERATION
        scene.group.check_commit("one", 2)
        scene.group.leave("one")
        scene.group.leave("two")
        await asyncio.sleep(1.0)
        scene.group.check_commit("", -1)

    run(check())


def _code(scene: Scene, consumer_id: str, generation: int) -> ErrorCode:
    with pytest.raises(GroupError) as refused:
        scene.group.check_commit(consumer_id, generation)
    return refused.value.code


def test_the_five_points_are_noted_in_their_order() -> None:
    async def check() -> None:
        scene = Scene()
        for name in ("one", "two"):
            joining = asyncio.ensure_future(scene.join("", name))
            await asyncio.sleep(0.1)
            if name == "two":
                on_response_written = scene.group.heartbeat("one", 1)
                assert on_response_written is not None
                on_response_written()
                again = asyncio.ensure_future(scene.join("one", "?"))
                first = await joining
                first.on_response_written()
                (await again).on_response_written()
        names = [line["event"] for line in scene.lines]
        assert names[names.index("draft-generation") + 1 :] == [
            "draft-change",
            "draft-joined",
            "draft-notified",
            "draft-generation",
            "draft-answered",
        ]
        assert scene.group.heartbeat("one", 2) is None
        assert scene.group.state is DraftState.REBALANCING
        assert scene.group.heartbeat("two", 2) is None
        assert scene.group.state is DraftState.STEADY

    run(check())


def test_one_that_heartbeats_but_does_not_join_holds_the_others_up_for_a_session_only() -> None:
    async def check() -> None:
        scene = Scene()
        await scene.join("", "deaf")
        other = asyncio.ensure_future(scene.join("", "other"))
        for _ in range(30):
            await asyncio.sleep(SESSION / 10)
            try:
                on_response_written = scene.group.heartbeat("deaf", 1)
            except GroupError:
                break
            if on_response_written is not None:
                on_response_written()
        joined = await asyncio.wait_for(other, SESSION)
        assert joined.generation == 2
        assert [line["reason"] for line in (line["detail"] for line in scene.named("draft-change"))][-1] == (
            "its session is over"
        )

    run(check())


def test_what_a_former_coordinator_stored_goes_on_and_a_silent_consumer_is_missed() -> None:
    async def check() -> None:
        scene = Scene()
        one = asyncio.ensure_future(scene.join("", "one"))
        two = asyncio.ensure_future(scene.join("", "two"))
        await asyncio.gather(one, two, return_exceptions=True)
        before = scene.store.written[-1]
        scene.group.end(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        scene.group = scene.make()
        scene.group.load(Versioned(before, len(scene.store.written) - 1))
        await scene.group.check_partition_counts()
        assert scene.group.heartbeat("one", before.generation) is None
        assert scene.group.state is DraftState.REBALANCING
        await asyncio.sleep(SESSION * 0.8)
        assert scene.group.heartbeat("one", before.generation) is None
        await asyncio.sleep(SESSION * 0.4)
        assert scene.group.heartbeat("one", before.generation) is not None, "two is gone"
        scene.partitions["a"] += 1
        assert set(scene.group.consumers) == {"one"}

    run(check())


def test_a_join_that_was_given_up_is_none() -> None:
    async def check() -> None:
        scene = Scene()
        await scene.join("", "one")
        gone = scene.group.join("", "gone", ["a"], "range", SESSION)
        gone.cancel()
        joined = await scene.join("one", "?")
        assert joined.generation == 2
        assert set(scene.store.written[-1].consumers) == {"one"}

    run(check())
