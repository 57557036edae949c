"""The life of a coordinator of the draft: down, catching up, ready, and down at once when it has lost its place."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from assay.cluster.sim.cluster import SimCluster
from assay.system_under_test.deployment import Broker
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.draft.coordinator import DraftCoordinator
from assay.system_under_test.groups.draft.group import DraftState
from assay.system_under_test.groups.draft.metadata import (
    ABSENT,
    CoordinatorDisplaced,
    GroupMetadata,
    MetadataStore,
    StoredConsumer,
)
from assay.system_under_test.groups.draft.term import DraftTerm, TermState
from assay.system_under_test.groups.group import GroupError
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.tasks import BackgroundTasks
from assay.system_under_test.zookeeper import paths, znodes

from helpers.sim_brokers import simulate, until

PARTITIONS = 8
INDEX = find_partition("g", PARTITIONS)


def metadata(epoch: int, generation: int) -> GroupMetadata:
    consumers = {"c": StoredConsumer(["orders"], 2000)}
    return GroupMetadata(epoch, generation, "range", consumers, {"orders": 0}, {"c": {}})


def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(coroutine, name=name)


def term_of(zookeeper: ZooKeeper, epoch: int) -> DraftTerm:
    events = EventLog(lambda line: None, lambda: None, (), asyncio.get_running_loop().time, 1, 1)
    return DraftTerm(INDEX, epoch, zookeeper, events, spawn)


def refusal(term: DraftTerm) -> ErrorCode | None:
    try:
        term.require_serving()
    except GroupError as error:
        return error.code
    return None


async def ready(term: DraftTerm) -> None:
    await until(lambda: term.state is TermState.READY, "it is ready", 5)


async def with_zookeeper(test: Any) -> None:
    """``test`` gets a client of a server that has the group ``g``, of one consumer, in epoch 5."""
    cluster = SimCluster(Broker(), {"zookeeper": 1, "broker": 1}, 1)
    await cluster.start()
    try:
        server = next(node for node in cluster.nodes if node.role == "zookeeper")
        await server.start()
        zookeeper = cluster.harness_runtime().zookeeper(f"{server.address}:2181", 3.0)
        await zookeeper.connect(10)
        await zookeeper.create(paths.draft_group("g"), znodes.encode(metadata(5, 3)), makepath=True)
        await test(zookeeper)
        await zookeeper.close()
    finally:
        await cluster.close()


def test_it_says_that_its_start_is_not_complete_until_it_knows_its_groups() -> None:
    async def check(zookeeper: ZooKeeper) -> None:
        term = term_of(zookeeper, 6)
        assert refusal(term) is ErrorCode.NOT_COORDINATOR_FOR_GROUP
        term.begin(PARTITIONS)
        assert refusal(term) is ErrorCode.GROUP_LOAD_IN_PROGRESS
        await ready(term)
        assert refusal(term) is None
        assert (term.groups["g"].generation, list(term.groups["g"].consumers)) == (3, ["c"])
        term.end()
        assert refusal(term) is ErrorCode.NOT_COORDINATOR_FOR_GROUP
        assert term.groups == {}

    simulate(lambda: with_zookeeper(check))


def test_one_who_lost_its_place_stops_at_once_and_stays_down_when_the_other_is_later() -> None:
    async def check(zookeeper: ZooKeeper) -> None:
        former, later = term_of(zookeeper, 6), term_of(zookeeper, 7)
        former.begin(PARTITIONS)
        await ready(former)
        later.begin(PARTITIONS)
        await ready(later)
        joining = former.groups["g"].join("c", "?", ["orders"], "range", 2.0)
        with pytest.raises(GroupError) as refused:
            await joining
        assert refused.value.code is ErrorCode.NOT_COORDINATOR_FOR_GROUP
        await asyncio.sleep(1.0)
        assert former.state is TermState.DOWN
        assert later.state is TermState.READY
        joined = await later.groups["g"].join("c", "?", ["orders"], "range", 2.0)
        assert joined.generation == 4
        for term in (former, later):
            term.end()

    simulate(lambda: with_zookeeper(check))


def test_one_whose_predecessor_came_in_between_learns_what_it_wrote() -> None:
    """The predecessor made a group that the new one does not know, since it was not there at its start."""

    async def check(zookeeper: ZooKeeper) -> None:
        await zookeeper.delete(paths.draft_group("g"))
        term = term_of(zookeeper, 6)
        term.begin(PARTITIONS)
        await ready(term)
        await zookeeper.create(paths.draft_group("g"), znodes.encode(metadata(5, 1)))
        group = term.make_group("g")
        joining = group.join("", "late", ["orders"], "range", 2.0)
        term.groups["g"] = group
        with pytest.raises(GroupError):
            await joining
        await ready(term)
        assert (term.groups["g"].generation, list(term.groups["g"].consumers)) == (1, ["c"])
        term.end()

    simulate(lambda: with_zookeeper(check))


def test_one_whose_term_ends_while_it_tidies_up_takes_nothing_away_from_its_successor() -> None:
    abandoned = next(name for name in (f"a{n}" for n in range(1000)) if find_partition(name, PARTITIONS) == INDEX)

    async def check(zookeeper: ZooKeeper) -> None:
        empty = GroupMetadata(5, 3, "range", {}, {}, {})
        await zookeeper.create(paths.draft_group(abandoned), znodes.encode(empty))
        unused: Any = None
        background = BackgroundTasks(unused)
        events = EventLog(lambda line: None, lambda: None, (), asyncio.get_running_loop().time, 1, 1)
        runtime: Any = SimpleNamespace(random=Random(1))
        coordinator = DraftCoordinator(unused, runtime, zookeeper, events, background, unused, unused)
        stored: Any = SimpleNamespace(index=INDEX, groups={})
        term = coordinator.lead(INDEX, 6)
        term.begin(PARTITIONS)
        await ready(term)
        tidying = asyncio.get_running_loop().create_task(coordinator.delete_empty_groups(stored))
        await asyncio.sleep(0)
        assert [group.group_id for group in term.groups.values() if group.state is DraftState.DEAD] == [abandoned]
        coordinator.end(term)
        await tidying
        assert await zookeeper.get_children(paths.DRAFT_GROUPS) == ["g"]
        await background.close()

    simulate(lambda: with_zookeeper(check))


@pytest.mark.parametrize("does", ["writes", "forgets"])
def test_a_former_coordinator_meets_no_version_of_its_own_in_a_group_that_was_made_again(does: str) -> None:
    """It sleeps while its successor forgets the group, and makes another of that name: versions begin at 0 again."""

    async def check(zookeeper: ZooKeeper) -> None:
        former, later = MetadataStore(zookeeper, 5), MetadataStore(zookeeper, 6)
        version = await former.write("h", metadata(5, 2), await former.write("h", metadata(5, 1), ABSENT))
        claimed = await later.claim("h")
        assert claimed is not None
        await later.delete("h", claimed.version)
        again = await later.write("h", metadata(6, 2), await later.write("h", metadata(6, 1), ABSENT))
        assert again == version
        with pytest.raises(CoordinatorDisplaced):
            await (former.write("h", metadata(5, 3), version) if does == "writes" else former.delete("h", version))
        data, stat = await zookeeper.get(paths.draft_group("h"))
        assert (data, stat.version) == (znodes.encode(metadata(6, 2)), again)
        again = await later.write("h", metadata(6, 3), again)
        await later.write("i", metadata(6, 1), ABSENT)  # does not disturb the next deletion, of another
        await later.delete("h", again)
        assert await zookeeper.exists(paths.draft_group("h")) is None

    simulate(lambda: with_zookeeper(check))
