"""The coordinator dies exactly at each of the five points of a rebalance, and its successor does what is expected."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from assay.cluster.node import ProcessState
from assay.cluster.sim.node import SimNode
from assay.system_under_test.protocol.errors import ErrorCode

from helpers.group_client import Member, all_in, coordinator
from helpers.sim_brokers import Brokers, brokers, simulate, until

LONG = 30_000
"""Milliseconds of a session that outlasts a failover by far."""
SHORT = 4_000
"""Milliseconds of one that does so, too, but is over soon."""


async def lie_in_wait(cluster: Brokers, event: str) -> None:
    for node in cluster.nodes:
        await node.write_file(cluster.system.hold_file(node), f"{event} g\n".encode())


async def die_there(cluster: Brokers, event: str) -> dict[str, Any]:
    """Kills the process that has stopped itself at the event; the line that was its last."""
    stopped: list[SimNode] = []

    async def caught() -> bool:
        stopped[:] = [node for node in cluster.nodes if (await node.process()).state is ProcessState.STOPPED]
        return bool(stopped)

    await until(caught, f"a coordinator stands at {event}", 30)
    (node,) = stopped
    await node.kill()
    for other in cluster.nodes:
        await other.write_file(cluster.system.hold_file(other), b"")
    last: dict[str, Any] = json.loads(node.log._lines[-1])
    assert (last["event"], last["key"]) == (event, "g")
    return last


def generations(cluster: Brokers) -> list[int]:
    """Returns those that were given to the group, by whichever broker."""
    return sorted(event["epoch"] for node in cluster.nodes for event in cluster.events(node, "group-generation"))


async def three(cluster: Brokers, silent: int = LONG) -> tuple[Member, Member, Member]:
    """Returns a leader and two followers in one generation. The last has a session of ``silent`` milliseconds."""
    members = [Member(cluster, session_timeout_ms=LONG, protocols={"range": b"r", "roundrobin": b"rr"})
               for _ in range(2)]  # fmt: skip
    await all_in(members[0])
    members.append(Member(cluster, session_timeout_ms=silent, protocols={"range": b"r", "roundrobin": b"rr"}))
    await all_in(*members)
    assert [member.leader for member in members] == [True, False, False]
    return members[0], members[1], members[2]


def test_1_noticed_in_vain_when_the_member_recovers() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            members = await three(cluster, SHORT)
            before = members[0].generation
            await lie_in_wait(cluster, "group-preparing")
            assert (await die_there(cluster, "group-preparing"))["detail"]["reason"] == "its session is over"
            for member in reversed(members):
                assert await member.heartbeat() == ErrorCode.NONE
            assert (await members[0].described()).state == "Stable"
            assert generations(cluster)[-1] == before, "no member had to join again"

    simulate(check)


def test_1_a_member_that_is_really_gone_is_noticed_again() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two, _ = await three(cluster, SHORT)
            before = one.generation
            await lie_in_wait(cluster, "group-preparing")
            await die_there(cluster, "group-preparing")
            assert await one.heartbeat() == ErrorCode.NONE

            async def removed() -> bool:
                return await one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

            await until(removed, "its session is over for the successor, too", 20)
            await all_in(one, two)
            assert one.generation > before
            assert len((await one.described()).members) == 2

    simulate(check)


def test_2_a_follower_that_was_called_in_vain_gets_the_same_generation_again() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two, three_ = await three(cluster, SHORT)
            before, assignment = two.generation, two.assignment

            async def called() -> bool:
                return await two.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

            await lie_in_wait(cluster, "group-partly-called")
            calling = asyncio.get_running_loop().create_task(until(called, "it is called", 20))
            last = await die_there(cluster, "group-partly-called")
            await calling
            assert last["owner"] == two.member_id
            assert await two.join() == ErrorCode.NONE
            assert await two.sync() == ErrorCode.NONE
            assert (two.generation, two.assignment) == (before, assignment)
            assert await three_.heartbeat() == ErrorCode.NONE
            assert await one.heartbeat() == ErrorCode.NONE, "who was not called goes on"
            assert generations(cluster)[-1] == before

    simulate(check)


def test_2_a_leader_that_was_called_may_have_news_of_partitions_and_starts_a_round() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two, gone = await three(cluster, SHORT)
            before = one.generation

            async def called() -> bool:
                return await one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

            await lie_in_wait(cluster, "group-partly-called")
            calling = asyncio.get_running_loop().create_task(until(called, "it is called", 20))
            await die_there(cluster, "group-partly-called")
            await calling
            await all_in(one, two, gone)
            assert one.generation == before + 1

    simulate(check)


def test_3_joins_that_are_repeated_make_a_new_round() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two, other = await three(cluster)
            before = one.generation
            late = Member(cluster)
            await lie_in_wait(cluster, "group-partly-joined")
            joins = asyncio.gather(late.enter(), two.enter())
            assert (await die_there(cluster, "group-partly-joined"))["owner"] == two.member_id
            await asyncio.gather(joins, one.enter(), other.enter())
            await all_in(one, two, other, late)
            assert one.generation > before
            assert len((await one.described()).members) == 4
            assert generations(cluster) == sorted(set(generations(cluster))), "none was given twice"

    simulate(check)


def test_4_what_was_written_counts_and_the_old_generation_is_refused() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two, other = await three(cluster)
            before = one.generation
            late = Member(cluster)
            await lie_in_wait(cluster, "group-assigned")
            entering = asyncio.gather(*(member.enter() for member in (late, one, two, other)))
            last = await die_there(cluster, "group-assigned")
            await entering  # each asks again for what it owns
            assert {member.generation for member in (one, two, other, late)} == {last["epoch"]}
            assert [member.assignment.decode() for member in (one, late)] == [one.member_id, late.member_id]
            assert generations(cluster)[-1] == last["epoch"], "the successor gave none"
            assert await two.heartbeat() == ErrorCode.NONE
            two.generation = before
            assert await two.heartbeat() == ErrorCode.ILLEGAL_GENERATION
            assert await two.commit(1) == ErrorCode.ILLEGAL_GENERATION

    simulate(check)


def test_5_the_new_generation_lives_for_all_and_a_join_starts_a_round() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            members = await three(cluster)
            late = Member(cluster)
            await lie_in_wait(cluster, "group-partly-assigned")
            entering = asyncio.gather(*(member.enter() for member in (late, *members)))
            last = await die_there(cluster, "group-partly-assigned")
            assigned = [
                member for member in (late, *members) if member.assignment and member.generation == last["epoch"]
            ]
            for member in (late, *members):  # by what they got as they joined
                assert await member.heartbeat() == ErrorCode.NONE
            await entering
            assert last["owner"] in {member.member_id for member in assigned}
            assert {member.generation for member in (late, *members)} == {last["epoch"]}
            assert generations(cluster)[-1] == last["epoch"]
            later = Member(cluster)
            await asyncio.gather(later.enter(), late.enter(), *(member.enter() for member in members))
            await all_in(later, late, *members)
            assert later.generation > last["epoch"]

    simulate(check)


def test_no_member_waits_at_a_point_that_is_none() -> None:
    """A member alone gets everything at once: nothing is partly done."""

    async def check() -> None:
        async with brokers() as cluster:
            one = Member(cluster, session_timeout_ms=LONG)
            await all_in(one)
            late = Member(cluster)
            await asyncio.gather(late.enter(), one.enter())
            address = await coordinator(cluster)
            node = next(node for node in cluster.nodes if node.address == address)
            assert not cluster.events(node, "group-partly-called")
            assert not cluster.events(node, "group-partly-joined")

    simulate(check)
