"""A group keeps its invariants under all that members may do, with a store that is slow or fails.

No member learns of a generation that is not stored, and no generation is given twice. Members of one generation see the
same group, and no member waits for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.cluster.sim.loop import SimLoop
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.group import Group, GroupError, GroupState
from assay.system_under_test.groups.records import GroupRecord, OffsetRecord
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import (
    GroupAssignment,
    GroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
)

from helpers.examples import some_of

SESSION, REBALANCE = 3.0, 5.0
UNAVAILABLE = ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE


@dataclass
class Store:
    """A log: what is put first is first in it, and counts ``delay`` seconds later. When it has to fail, it says so, and
    the record is there or not, as it happens.
    """

    rng: random.Random
    delay: float = 0.05
    failing: bool = False
    log: list[int] = field(default_factory=list)
    """Generations, in the order in which they were put."""
    counted: set[int] = field(default_factory=set)

    async def put(self, record: GroupRecord) -> ErrorCode:
        assert record.value is not None
        failing, there = self.failing, not self.failing or self.rng.random() < 0.5
        if there:
            self.log.append(record.value.generation)
        await asyncio.sleep(self.delay)
        if there:
            self.counted.add(record.value.generation)
        return UNAVAILABLE if failing else ErrorCode.NONE


@dataclass
class Scene:
    store: Store
    group: Group
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


def scene(seed: int = 0) -> Scene:
    loop = asyncio.get_running_loop()
    store = Store(random.Random(seed))
    made: list[asyncio.Task[None]] = []

    def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> object:
        made.append(loop.create_task(coroutine, name=name))
        return made[-1]

    events = EventLog(lambda line: None, lambda: None, (), loop.time, 1, 1)
    return Scene(store, Group("g", store.put, events, spawn), made)


def joining(member_id: str = "", protocols: tuple[str, ...] = ("range",), kind: str = "consumer") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=int(SESSION * 1000),
        rebalance_timeout_ms=int(REBALANCE * 1000),
        member_id=member_id,
        protocol_type=kind,
        protocols=[GroupProtocol(name=name, metadata=name.encode()) for name in protocols],
    )


def syncing(answer: JoinGroupResponse) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[
            GroupAssignment(member_id=member.member_id, assignment=member.member_id.encode())
            for member in answer.members
        ],
    )


def simulate(test: Coroutine[Any, Any, None]) -> None:
    loop = SimLoop(1)
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()


@dataclass
class Actor:
    """A member as clients are: joins, syncs, heartbeats, and starts over when it has to."""

    scene: Scene
    name: str
    rng: random.Random
    active: bool = True
    seen: list[tuple[int, str]] = field(default_factory=list)
    """Each generation that it was in, and as whom."""
    owned: list[tuple[int, str]] = field(default_factory=list)

    async def live(self) -> None:
        member_id, lives = "", 0
        while self.active:
            lives += 1
            try:
                answer = await asyncio.wait_for(
                    self.scene.group.join(joining(member_id), self.name, "/h", f"{self.name}-{lives}"), 60
                )
                if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID)
                if answer.error_code:
                    await asyncio.sleep(0.1)
                    continue
                member_id = answer.member_id
                assert answer.generation_id in self.scene.store.counted, "it is stored before any member learns of it"
                self.seen.append((answer.generation_id, member_id))
                synced = await asyncio.wait_for(self.scene.group.sync(syncing(answer)), 60)
                if synced.error_code:
                    await asyncio.sleep(0.05)
                    continue
                assert synced.assignment == member_id.encode()
                self.owned.append((answer.generation_id, member_id))
                while self.active:
                    await asyncio.sleep(SESSION / 4)
                    self.scene.group.heartbeat(member_id, answer.generation_id)
            except GroupError as error:
                if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    member_id = ""
                await asyncio.sleep(0.05)


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["start", "stop", "leave", "stall", "fail", "mend"]),
        st.integers(0, 4),
        st.sampled_from([0.0, 0.01, 0.06, 0.3, 1.0, 4.0]),
    ),
    max_size=25,
)


@settings(max_examples=some_of(150), deadline=None)
@given(DEEDS, st.integers(0, 10))
def test_laws(deeds: list[tuple[str, int, float]], seed: int) -> None:
    async def check() -> None:
        rng = random.Random(seed)
        stage = scene(seed)
        group, actors, tasks = stage.group, {}, {}
        for deed, who, pause in deeds:
            if deed == "start" and who not in actors:
                actors[who] = Actor(stage, f"m{who}-{len(tasks)}", rng)
                tasks[len(tasks)] = asyncio.get_running_loop().create_task(actors[who].live())
            elif deed == "stop" and who in actors:
                actors.pop(who).active = False  # without a word
            elif deed == "leave" and group.members:
                leaver = rng.choice(sorted(group.members))
                group.leave(leaver)
            elif deed == "stall":
                stage.store.delay = 2.0 if who % 2 else 0.05
            elif deed in ("fail", "mend"):
                stage.store.failing = deed == "fail"
            await asyncio.sleep(pause)
        stage.store.failing, stage.store.delay = False, 0.05
        await asyncio.sleep(3 * (SESSION + REBALANCE))
        assert stage.store.log == sorted(stage.store.log), "they rise"
        assert all(not task.done() or task.exception() is None for task in tasks.values())
        if actors:
            assert group.state is GroupState.STABLE
            assert len(group.members) == len(actors)
            current = {actor.seen[-1] for actor in actors.values()}
            assert current == {(group.generation, member_id) for member_id in group.members}
        else:
            assert group.state is GroupState.EMPTY
            assert not group.members
        group.end(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
        for actor in actors.values():
            actor.active = False
        for task in tasks.values():
            task.cancel()

    simulate(check())


def test_what_was_answered_is_stored_in_the_same_generation_once() -> None:
    """Two generations that may both have been stored never have one number."""

    async def check() -> None:
        stage = scene()
        stage.store.failing = True
        for number in range(6):
            answer = await stage.group.join(joining(), "c", "/h", f"c-{number}")
            assert answer.error_code == UNAVAILABLE
            assert not stage.group.members, "one that never got an id is no member"
        stage.store.failing = False
        answer = await stage.group.join(joining(), "c", "/h", "c-last")
        assert answer.generation_id == 7
        assert len(set(stage.store.log)) == len(stage.store.log)

    simulate(check())


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (joining("stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (joining(protocols=("roundrobin",)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(kind="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_who_may_not_join(request_: JoinGroupRequest, code: ErrorCode) -> None:
    async def check() -> None:
        group = scene().group
        await group.join(joining(), "a", "/h", "a")
        with pytest.raises(GroupError) as refused:
            await group.join(request_, "b", "/h", "b")
        assert refused.value.code is code
        assert list(group.members) == ["a"]

    simulate(check())


def test_most_votes_among_what_all_know() -> None:
    async def check() -> None:
        group = scene().group
        await group.join(joining(protocols=("x", "range", "sticky")), "a", "/h", "a")
        liking = ("sticky", "range")
        others = [group.join(joining(protocols=liking), name, "/h", name) for name in ("b", "c")]
        again = group.join(joining("a", protocols=("x", "range", "sticky")), "a", "/h", "-")
        answers = await asyncio.gather(again, *others)
        assert {answer.protocol for answer in answers} == {"sticky"}

    simulate(check())


def test_a_late_member_is_not_in_the_generation_that_is_being_written() -> None:
    async def check() -> None:
        stage = scene()
        first = stage.group.join(joining(), "a", "/h", "a")
        late = stage.group.join(joining(), "b", "/h", "b")
        answer = await first
        assert [member.member_id for member in answer.members] == ["a"]
        with pytest.raises(GroupError) as raised:
            stage.group.heartbeat("a", answer.generation_id)
        assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS
        again = await stage.group.join(joining("a"), "a", "/h", "-")
        both = {again.generation_id, (await late).generation_id}
        assert both == {answer.generation_id + 1}
        assert sorted(member.member_id for member in again.members) == ["a", "b"]

    simulate(check())


def test_a_missed_answer_is_given_again_without_a_new_generation() -> None:
    async def check() -> None:
        stage = scene()
        answer = await stage.group.join(joining(), "a", "/h", "a")
        again = await stage.group.join(joining("a"), "a", "/h", "-")
        assert again == answer
        await stage.group.sync(syncing(answer))
        assert (await stage.group.sync(syncing(answer))).assignment == b"a"

    simulate(check())


def test_a_commit_is_refused_between_generations() -> None:
    """A member that has joined the next one has nothing to say of the last."""

    async def check() -> None:
        stage = scene()
        answer = await stage.group.join(joining(), "a", "/h", "a")
        with pytest.raises(GroupError) as raised:
            stage.group.check_commit("a", answer.generation_id)
        assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS
        await stage.group.sync(syncing(answer))
        stage.group.check_commit("a", answer.generation_id)
        late = stage.group.join(joining(), "b", "/h", "b")
        stage.group.check_commit("a", answer.generation_id)  # it has not joined again yet
        again = stage.group.join(joining("a"), "a", "/h", "-")
        with pytest.raises(GroupError) as raised:
            stage.group.check_commit("a", answer.generation_id)
        assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.gather(late, again)
        with pytest.raises(GroupError) as raised:
            stage.group.check_commit("a", answer.generation_id)
        assert raised.value.code is ErrorCode.ILLEGAL_GENERATION
        with pytest.raises(GroupError):
            stage.group.check_commit("", -1)

    simulate(check())


def test_who_waits_for_the_others_outlives_its_session_and_who_does_not_join_again_is_out() -> None:
    async def check() -> None:
        stage = scene()
        answer = await stage.group.join(joining(), "slow", "/h", "slow")
        await stage.group.sync(syncing(answer))
        waiting = stage.group.join(joining(), "patient", "/h", "patient")

        async def beat() -> None:  # it lives, but does not join again
            while "slow" in stage.group.members:
                with pytest.raises(GroupError) as raised:
                    stage.group.heartbeat("slow", answer.generation_id)
                assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS
                await asyncio.sleep(SESSION / 3)

        await beat()
        joined = await waiting
        assert (joined.error_code, [member.member_id for member in joined.members]) == (0, ["patient"])

    simulate(check())


def test_a_leader_that_does_not_assign_has_all_join_again() -> None:
    async def check() -> None:
        stage = scene()
        first = stage.group.join(joining(), "a", "/h", "a")
        leading = await first
        other = stage.group.join(joining(), "b", "/h", "b")
        leading = await stage.group.join(joining("a"), "a", "/h", "-")
        following = await other
        waiting = stage.group.sync(syncing(following))
        while not waiting.done():
            stage.group.heartbeat("a", leading.generation_id)  # it lives
            await asyncio.sleep(SESSION / 3)
        assert waiting.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS

    simulate(check())


def test_one_that_goes_away_while_joining_is_forgotten_after_a_session() -> None:
    async def check() -> None:
        stage = scene()
        answer = await stage.group.join(joining(), "slow", "/h", "slow")
        await stage.group.sync(syncing(answer))
        for number in range(5):
            stage.group.join(joining(), "gone", "/h", f"gone-{number}").cancel()
        for _ in range(int(1.5 * SESSION)):
            await asyncio.sleep(1)
            with pytest.raises(GroupError):
                stage.group.heartbeat("slow", answer.generation_id)
            if list(stage.group.members) == ["slow"]:
                return
        pytest.fail(f"there are {sorted(stage.group.members)}")

    simulate(check())


def test_a_group_of_which_a_commit_is_under_way_is_not_forgotten() -> None:
    async def check() -> None:
        group = scene().group
        record = OffsetRecord("g", "orders", 0, None)
        assert group.deletable
        group.offsets.begin([record])
        assert not group.deletable
        group.offsets.resolve([record], None)
        assert group.deletable

    simulate(check())
