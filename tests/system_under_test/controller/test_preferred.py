"""The first of the assignment gets the lead back: when ZooKeeper, Admin or the clock asks for it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from assay.system_under_test.client.errors import Certainty
from assay.system_under_test.controller.cluster_state import ClusterState, Topic
from assay.system_under_test.controller.leaders import BrokerIncarnation
from assay.system_under_test.controller.preferred import find_imbalanced
from assay.system_under_test.controller.topic_settings import VersionedSettings
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.zookeeper.znodes import PartitionState, ReassignmentEntry, Versioned

from helpers.moving_partition import PREFERRED, TOPIC, Moving, load, moving
from helpers.sim_brokers import simulate, until

slow = pytest.mark.slow
ENTRY = {"topic": TOPIC, "partition": 0}


async def usurped(test: Moving) -> None:
    """The first replica is back in sync, and another leads."""
    first = test.node(1)
    await first.stop()

    async def replaced() -> bool:
        return (await test.state())["leader"] != 1

    await until(replaced, "another leads")
    await first.resume()
    await in_sync(test)


async def in_sync(test: Moving) -> None:
    async def complete() -> bool:
        return sorted((await test.state())["isr"]) == [1, 2, 3]

    await until(complete, "all are in sync")


@slow
@pytest.mark.parametrize("seed", range(8))
def test_the_first_replica_leads_again_under_load_whichever_broker_dies(seed: int) -> None:
    async def check() -> None:
        async with moving(seed) as test, load(test):
            await usurped(test)
            usurper = test.node((await test.state())["leader"])
            victim = {1: await test.cluster.controller(), 2: test.node(1), 3: usurper}
            await test.write(PREFERRED, [ENTRY])
            if seed % 4:
                await asyncio.sleep(0.001 * seed)
                await victim[seed % 4].kill()
                await victim[seed % 4].start()
            await until(lambda: test.gone(PREFERRED), "it is done")
            if seed % 4 == 0:
                state = await test.state()
                assert (state["leader"], sorted(state["isr"])) == (1, [1, 2, 3])
            await in_sync(test)

    simulate(check, seed)


@slow
@pytest.mark.parametrize(
    ("entries", "lines"),
    [
        ([{"topic": "nothing", "partition": 0}], 1),
        ([{"topic": TOPIC, "partition": 9}], 1),
        ([{"topic": TOPIC}, {"partition": 1}, 7], 3),
        (["nonsense"], 1),
    ],
)
def test_entries_that_make_no_sense_are_refused_and_the_others_held(
    entries: list[object], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with moving() as test:
            await usurped(test)
            caplog.clear()
            await test.write(PREFERRED, [*entries, ENTRY])
            await until(lambda: test.gone(PREFERRED), "it is done")
            assert (await test.state())["leader"] == 1
            assert sum(record.levelno >= logging.ERROR for record in caplog.records) == lines

    simulate(check)


@slow
@pytest.mark.parametrize("data", [b"", b"{", b'{"version":1,"partitions":7}'])
def test_a_request_that_makes_no_sense_is_one_line_and_goes(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with moving() as test:
            await test.zookeeper.create(PREFERRED, data)
            await until(lambda: test.gone(PREFERRED), "it is refused")
            said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert [PREFERRED in line for line in said] == [True]
            await usurped(test)
            await test.write(PREFERRED, [ENTRY])
            await until(lambda: test.gone(PREFERRED), "the next one is held")
            assert (await test.state())["leader"] == 1

    simulate(check)


@slow
def test_admin_learns_who_leads_now_and_who_cannot() -> None:
    async def check() -> None:
        async with moving() as test:
            await usurped(test)
            known = await test.admin.elect_preferred([(TOPIC, 0), (TOPIC, 0), ("nothing", 0)])
            assert {p: (one.outcome, one.error) for p, one in known.items()} == {
                (TOPIC, 0): (Certainty.DONE, E.NONE),
                ("nothing", 0): (Certainty.NOT_DONE, E.UNKNOWN_TOPIC_OR_PARTITION),
            }
            epoch = (await test.state())["leader_epoch"]
            assert (await test.admin.elect_preferred([(TOPIC, 0)]))[TOPIC, 0].outcome is Certainty.DONE
            assert (await test.state())["leader_epoch"] == epoch, "it led already"
            await test.node(1).kill()

            async def replaced() -> bool:
                return (await test.state())["leader"] != 1

            await until(replaced, "another leads")
            refused = (await test.admin.elect_preferred([(TOPIC, 0)]))[TOPIC, 0]
            assert (refused.outcome, refused.error) == (Certainty.NOT_DONE, E.LEADER_NOT_AVAILABLE)

    simulate(check)


@slow
def test_the_lead_goes_back_by_itself_after_a_while() -> None:
    async def check() -> None:
        async with moving() as test:
            await usurped(test)
            await asyncio.sleep(301)  # leader_imbalance_check_interval_seconds
            assert (await test.state())["leader"] == 1

    simulate(check)


def cluster(leaders: list[tuple[int, int]]) -> ClusterState:
    """A partition for each (first of its assignment, leader); brokers 1 and 2 live."""
    made = ClusterState({b: BrokerIncarnation(b, "h", 1, b) for b in (1, 2)})
    assignment = {index: [first, 9] for index, (first, _) in enumerate(leaders)}
    made.topics["t"] = Topic(1, assignment, VersionedSettings({}, 1))
    for index, (_, leader) in enumerate(leaders):
        made.states["t", index] = Versioned(PartitionState(1, leader, 1, [leader]), 0)
    return made


def test_only_who_leads_too_few_of_his_own_gets_them_back() -> None:
    assert find_imbalanced(cluster([(1, 1)] * 9 + [(1, 2)]), 10) == [], "one in ten may be led by others"
    assert find_imbalanced(cluster([(1, 1)] * 8 + [(1, 2)]), 10) == [("t", 8)]
    assert find_imbalanced(cluster([(2, 2), (1, 2), (3, 2)]), 10) == [("t", 1)], "3 is dead"
    busy = cluster([(1, 2), (1, 2)])
    busy.moves["t", 0] = ReassignmentEntry("t", 0, [5])
    assert find_imbalanced(busy, 10) == [("t", 1)]
    busy.begun_deletions["t"] = None
    assert find_imbalanced(busy, 10) == []
    stopping = cluster([(1, 2)])
    stopping.leaving[1] = stopping.brokers[1].czxid
    assert find_imbalanced(stopping, 10) == []
