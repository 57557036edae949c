"""Partitions move to other brokers, whichever broker dies, and lose nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from assay.system_under_test.client.admin import MoveState, NewTopic
from assay.system_under_test.client.admin import Reassignment as Move
from assay.system_under_test.client.errors import Certainty
from assay.system_under_test.controller import assignments
from assay.system_under_test.controller.cluster_state import ClusterState, PartitionId, Topic
from assay.system_under_test.controller.leaders import BrokerIncarnation
from assay.system_under_test.controller.reassignment import Reassignments
from assay.system_under_test.controller.term import FencedWriter
from assay.system_under_test.controller.topic_settings import VersionedSettings
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.errors import ErrorCode as E
from assay.system_under_test.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from assay.system_under_test.records import message_set
from assay.system_under_test.zookeeper import paths, znodes
from assay.system_under_test.zookeeper.znodes import PartitionState
from assay.system_under_test.zookeeper.znodes import ReassignmentEntry as Entry

from helpers.moving_partition import KEY, REASSIGN, TOPIC, Moving, load, moving
from helpers.sim_brokers import simulate, until

pytestmark = pytest.mark.slow


def test_a_partition_under_load_moves_and_its_old_replica_leaves_no_files() -> None:
    async def check() -> None:
        async with moving() as test:
            async with load(test):
                await test.ask([2, 3, 4])
                await test.moved([2, 3, 4])
            assert [event["replicas"] for event in test.events("assignment-written")] == [
                [1, 2, 3, 4],
                [2, 3, 4],
            ]

    simulate(check)


STEPS = ("asked", "grown", "copying", "switched", "deleted")
VICTIMS = ("controller", "leader", "new", "old")


async def reached(test: Moving, step: str) -> None:
    """Waits for the moment right after it."""

    def written() -> int:
        return len(test.events("assignment-written"))

    conditions: dict[str, Callable[[], bool]] = {
        "asked": lambda: True,
        "grown": lambda: written() >= 1,
        "copying": lambda: written() >= 1 and 4 in test.having(),
        "switched": lambda: written() >= 2,
        "deleted": lambda: 1 not in test.having(),
    }
    await closely(conditions[step], step)


async def closely(condition: Callable[[], bool], what: str) -> None:
    """As ``until``, but at once: a step takes milliseconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 20
    while not condition():
        assert loop.time() < deadline, f"not within 20 s: {what}"
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 20))])
def test_a_move_under_load_survives_the_death_of_any_broker_at_any_step(seed: int) -> None:
    step, who = STEPS[seed % len(STEPS)], VICTIMS[seed % len(VICTIMS)]

    async def check() -> None:
        async with moving(seed) as test, load(test):
            roles = {
                "controller": await test.cluster.controller(),
                "leader": await test.cluster.leader(KEY),
                "new": test.node(4),
                "old": test.node(1),
            }
            await test.ask([2, 3, 4])
            await reached(test, step)
            victim = roles[who]
            await victim.kill()
            await asyncio.sleep(random.Random(seed).choice([0.0, 1.0, 5.0]))
            await victim.start()
            await test.moved([2, 3, 4])

    simulate(check, seed)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_moves_go_on_through_whatever_happens(seed: int) -> None:
    """Moves follow each other or overlap, while brokers and ZooKeeper die, sleep, and are cut off."""

    async def check() -> None:
        rng = random.Random(seed)
        async with moving(seed) as test, load(test):
            watcher = asyncio.ensure_future(_members_are_assigned(test))
            for _ in range(6):
                target = rng.sample([1, 2, 3, 4], rng.choice([2, 3, 3, 3, 4]))
                await test.ask_anyhow(target)
                await asyncio.sleep(rng.choice([0.0, 0.01, 0.03, 0.3, 1.0]) * rng.random())
                await _mishap(test, rng)
                if rng.random() < 0.5:
                    await until(test.gone, f"it is at {target}", 40)
            await until(test.gone, "all has ended", 40)
            await test.moved(await test.assignment())
            watcher.cancel()
            (end,) = await asyncio.gather(watcher, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError), end

    simulate(check, seed)


async def _mishap(test: Moving, rng: random.Random) -> None:
    node = rng.choice([*test.cluster.nodes, *test.cluster.zookeepers])
    how = rng.choice(["kill", "stop", "cut", "none"])
    if how == "kill":
        await node.kill()
        await asyncio.sleep(rng.choice([0.0, 0.2, 4.0]))
        await node.start()
    elif how == "stop":
        await node.stop()
        await asyncio.sleep(rng.choice([0.5, 5.0]))
        await node.resume()
    elif how == "cut":
        await test.cluster.cut(node, [other for other in test.cluster.cluster.nodes if other is not node])
        await asyncio.sleep(rng.choice([0.5, 5.0]))
        await test.cluster.heal()


async def _members_are_assigned(test: Moving) -> None:
    """For ever: every replica that is in sync, or leads, is assigned; both are read as of one moment."""
    while True:
        before = await test.assignment()
        state = await test.state()
        if before == await test.assignment():
            assert {*state["isr"], *state["elr"], state["leader"]} <= {*before, -1}, f"{state} of {before}"
        await asyncio.sleep(0.02)


# -- what is waited for, and what is refused -------------------------------------------------------------------------


async def dead(test: Moving, broker: int) -> None:
    """Killed, and known to be dead."""
    await test.node(broker).kill()

    async def forgotten() -> bool:
        return str(broker) not in await test.zookeeper.get_children("/brokers/ids")

    await until(forgotten, f"the session of broker {broker} has ended")


def test_a_new_replica_that_is_dead_is_waited_for_before_anything_changes() -> None:
    async def check() -> None:
        async with moving() as test:
            await dead(test, 4)
            await test.ask([2, 3, 4])
            await asyncio.sleep(5)
            assert await test.assignment() == [1, 2, 3]
            await test.node(4).start()
            await test.moved([2, 3, 4])

    simulate(check)


def test_an_old_replica_that_is_dead_counts_no_more_but_is_waited_for_until_its_files_are_gone() -> None:
    async def check() -> None:
        async with moving() as test:
            await dead(test, 1)
            async with load(test):
                await test.ask([2, 3, 4])
                await until(lambda: len(test.events("assignment-written")) == 2, "the others have it")
                await asyncio.sleep(5)
                assert await test.assignment() == [2, 3, 4]
                (entry,) = (await test.json(REASSIGN))["partitions"]
                assert entry == {"topic": TOPIC, "partition": 0, "replicas": [2, 3, 4], "removing": [1]}
                assert test.having() == [1, 2, 3, 4]
            await test.node(1).start()
            await test.moved([2, 3, 4])

    simulate(check)


@pytest.mark.parametrize(
    "entry",
    [
        {"topic": "nothing", "partition": 0, "replicas": [1]},
        {"topic": TOPIC, "partition": 7, "replicas": [1]},
        {"topic": TOPIC, "partition": 0, "replicas": []},
        {"topic": TOPIC, "partition": 0, "replicas": [2, 2]},
        {"topic": TOPIC, "partition": 0, "replicas": [-1, 2]},
        {"topic": TOPIC, "partition": 0, "replicas": [2**31]},
        {"topic": TOPIC, "partition": "0", "replicas": [1]},
        {"topic": TOPIC},
        17,
    ],
)
def test_an_entry_that_makes_no_sense_is_refused_and_the_others_go_on(
    entry: object, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with moving() as test:
            other = {"topic": "orders", "partition": 0, "replicas": [4]}
            await test.write(REASSIGN, [entry, other])
            await test.moved([4], topic="orders")
            assert await test.assignment() == [1, 2, 3]
            said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert len(said) == 1
            assert "reassign" in said[0]

    simulate(check)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b'{"version":1}', b'{"version":1,"partitions":{}}'])
def test_a_request_that_makes_no_sense_is_refused_and_loses_nothing_that_is_under_way(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        async with moving() as test:
            await test.zookeeper.create(REASSIGN, data)
            await until(test.gone, "it is refused")
            await dead(test, 4)
            await test.ask([2, 3, 4])
            await asyncio.sleep(1)
            await test.zookeeper.set(REASSIGN, data)
            await asyncio.sleep(1)
            await test.node(4).start()
            await test.moved([2, 3, 4])
            said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
            assert [REASSIGN in line for line in said] == [True, True]

    simulate(check)


def test_a_topic_that_is_deleted_takes_its_reassignment_along() -> None:
    async def check() -> None:
        async with moving() as test:
            await dead(test, 1)
            await test.ask([2, 3, 4])
            await until(lambda: len(test.events("assignment-written")) == 2, "only old files are waited for")
            await test.zookeeper.create(f"/admin/delete_topics/{TOPIC}")
            await asyncio.sleep(3)
            await test.zookeeper.delete("/controller")  # the next one has to learn of that, too
            await asyncio.sleep(3)
            assert await test.zookeeper.exists(f"/brokers/topics/{TOPIC}") is not None, "the dead one has files"
            await test.node(1).start()
            await until(test.gone, "the entry is gone")
            assert await test.zookeeper.exists(f"/brokers/topics/{TOPIC}") is None
            assert test.having() == []

    simulate(check)


@pytest.mark.parametrize("seed", range(4))
def test_the_next_topic_of_that_name_does_not_move_where_the_deleted_one_was_to_go(seed: int) -> None:
    async def check() -> None:
        async with moving(seed) as test:
            await test.ask([2, 3, 5])  # waited for, since there is no such broker
            await asyncio.sleep(1)

            async def make() -> None:
                wanted = NewTopic(TOPIC, assignment={0: [1, 2, 3]})
                while (await test.admin.create_topics([wanted]))[TOPIC].outcome is not Certainty.DONE:
                    pass

            making = [asyncio.ensure_future(make()) for _ in range(3)]
            await test.zookeeper.create(f"/admin/delete_topics/{TOPIC}")
            await asyncio.wait(making, return_when=asyncio.FIRST_COMPLETED)
            for each in making:
                each.cancel()
            await asyncio.gather(*making, return_exceptions=True)
            await asyncio.sleep(1)
            assert await test.gone()

    simulate(check, seed)


def test_a_request_across_another_leads_to_where_the_last_one_says() -> None:
    """Also when what is being removed by the first is wanted by the second, or known to the first alone."""

    async def check() -> None:
        async with moving() as test:
            await dead(test, 1)
            async with load(test):
                await test.ask([2, 3, 4])
                await until(lambda: len(test.events("assignment-written")) == 2, "only old files are waited for")
                await test.ask_anyhow([4, 3])
                await until(lambda: len(test.events("assignment-written")) == 3, "again")
                (entry,) = (await test.json(REASSIGN))["partitions"]
                assert 1 in entry["removing"], "whose files are there still"
                await test.ask_anyhow([1, 4])
                await asyncio.sleep(1)
                await test.node(1).start()
                await test.moved([1, 4])

    simulate(check)


def test_a_replica_that_came_back_and_went_again_is_deleted_again_while_another_is_out_of_reach() -> None:
    """That it was deleted once says nothing of the files that it has made since."""

    async def check() -> None:
        async with moving() as test:
            await test.held_back(3)
            await test.ask([2, 4])
            await until(lambda: 1 not in test.having(), "the first is deleted, and the other not")
            await test.ask_anyhow([2, 4, 1])
            await until(lambda: 1 in test.having(), "it is there again")
            await test.ask_anyhow([2, 4])
            await until(lambda: len(test.events("assignment-written")) == 4, "it is not assigned again")
            await test.cluster.heal()
            await test.moved([2, 4])

    simulate(check)


def test_a_leader_that_is_to_go_leads_no_more_although_it_cannot_be_deleted_yet() -> None:
    """A client with old metadata would write to it, and get an acknowledgement, until another is within reach again."""

    async def check() -> None:
        async with moving() as test:
            await test.held_back(3)
            await test.ask([1, 2, 4])
            await until(lambda: len(test.events("assignment-written")) == 2, "the one out of reach is waited for")
            assert (await test.state())["leader"] == 1
            await test.ask_anyhow([2, 4])
            await until(lambda: len(test.events("assignment-written")) == 3, "the leader is to go")
            await asyncio.sleep(1)
            assert 1 in test.having()
            records = message_set.build([(None, b"lost", 1)])
            part = ProduceTopic(topic=TOPIC, partitions=[ProducePartition(partition=0, records=records)])
            connection = await Connection.open(test.node(1).address, 9092, 2)
            answer = await connection.call(ProduceRequest(acks=1, timeout_ms=1000, topics=[part]), 2, 2)
            await connection.close()
            assert answer.topics[0].partitions[0].error_code == E.NOT_LEADER_FOR_PARTITION

    simulate(check)


@pytest.mark.parametrize(
    ("late", "target", "assigned"), [(4, [1, 4], [1, 2, 3, 4]), (2, [1, 2], [1, 2, 3])], ids=["new", "old"]
)
def test_no_replica_goes_before_all_that_stay_are_in_sync_although_the_leader_stays(
    late: int, target: list[int], assigned: list[int]
) -> None:
    """Else what is acknowledged would be on the leader alone."""

    async def check() -> None:
        async with moving() as test:
            await test.held_back(late)

            async def in_sync() -> bool:
                return {*(await test.state())["isr"]} == {1, 2, 3} - {late}

            await until(in_sync, "only the late one is not in sync", 40)
            assert (await test.state())["leader"] == 1
            await test.ask(target)
            await asyncio.sleep(5)
            assert await test.assignment() == assigned
            assert await in_sync()
            assert not await test.gone()
            await test.cluster.heal()
            await test.moved(target)

    simulate(check)


def test_a_move_that_only_adds_has_not_ended_before_the_new_replica_is_in_sync() -> None:
    async def check() -> None:
        async with moving() as test:
            await test.held_back(4)
            await test.ask([1, 2, 3, 4])
            await until(lambda: len(test.events("assignment-written")) == 1, "the new replica is assigned")
            await asyncio.sleep(2)
            assert not await test.gone()
            await test.cluster.heal()
            await until(test.gone, "it has ended")
            assert sorted((await test.state())["isr"]) == [1, 2, 3, 4]

    simulate(check)


def test_who_takes_the_request_away_stops_it_where_it_is() -> None:
    async def check() -> None:
        async with moving() as test:
            await test.held_back(4)
            await test.ask([2, 3, 4])
            await until(lambda: len(test.events("assignment-written")) == 1, "the new replica is assigned")
            await test.zookeeper.delete(REASSIGN)
            await test.cluster.heal()
            await test.moved([1, 2, 3, 4])

    simulate(check)


def test_an_order_of_replicas_is_an_assignment_too() -> None:
    async def check() -> None:
        async with moving() as test:
            await test.ask([3, 2, 1])
            await test.moved([3, 2, 1])

    simulate(check)


def test_partitions_can_be_added_while_others_move() -> None:
    async def check() -> None:
        async with moving() as test:
            await test.held_back(4)
            await test.ask([2, 3, 4])
            await until(lambda: len(test.events("assignment-written")) == 1, "the new replica is assigned")
            assert (await test.admin.create_partitions(TOPIC, 2)).outcome is Certainty.DONE
            await test.cluster.heal()
            await test.moved([2, 3, 4])
            added = (await test.json(f"/brokers/topics/{TOPIC}"))["partitions"]["1"]
            assert len(added) == 3, "as many as the first one is to have"

    simulate(check)


class Znode:
    """Client that returns the same node, whatever is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def get(self, path: str, watch: object = None) -> tuple[bytes, Any]:
        return self.data, SimpleNamespace(czxid=7, version=3)


@pytest.mark.parametrize(
    ("found", "adopted"),
    [([1, 2, 3, 4], True), ([4, 2, 3], True), ([1, 2, 3], True), ([1, 2, 4], False), ([4, 3, 2], False)],
)
def test_a_step_of_unknown_outcome_is_taken_up_where_it_was_done(found: list[int], adopted: bool) -> None:
    """A state that is no such step is put back."""
    cluster = ClusterState(topics={"t": Topic(7, {0: [1, 2, 3]}, VersionedSettings({}, 7))})
    cluster.moves["t", 0] = Entry("t", 0, [4, 2, 3])
    written: list[Any] = []

    class Written:
        async def write(self, operations: list[Any]) -> None:
            written.extend(operations)

    class Partitions:
        async def rewrite(self, partition: PartitionId, change: Callable[[PartitionState], Any]) -> bool:
            return False

    active: Any = SimpleNamespace(
        cluster=cluster, writer=Written(), partitions=Partitions(), term=SimpleNamespace(epoch=1)
    )
    znode: Any = Znode(json.dumps({"version": 1, "partitions": {"0": found}}).encode())
    asyncio.run(assignments.check_assignment(znode, active, "t", lambda _: None))
    assert cluster.topics["t"].assignment == {0: found if adopted else [1, 2, 3]}
    assert [json.loads(one.data)["partitions"] for one in written] == ([] if adopted else [{"0": [1, 2, 3]}])


@pytest.mark.parametrize(
    "data",
    [
        b'{"partitions":[{"topic":"\xff","partition":0,"replicas":[1]}]}',
        b'{"partitions":[{"topic":"t","partition":"\xff","replicas":[1]}]}',
        b'{"partitions":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    ],
    ids=["text that is not UTF-8", "the same in the wrong place", "nested without end"],
)
def test_bytes_that_no_decoder_likes_are_a_mistake_in_the_znode_like_any_other(data: bytes) -> None:
    """Whatever else they raised would end one controller after the other."""
    try:
        found, problems = znodes.decode_entries(Entry, REASSIGN, data)
    except znodes.ZnodeError as error:
        found, problems = [], [str(error)]
    assert found == []
    assert REASSIGN in problems[0]
    assert znodes.parse_controller_id(data) == -1


def test_a_step_waits_while_the_topics_znode_makes_no_sense() -> None:
    """It was overwritten an instant ago: it is about to be put back."""
    asked, again = Entry("t", 0, [1, 2]), []
    cluster = ClusterState(topics={"t": Topic(7, {0: [1]}, VersionedSettings({}, 7))}, moves={("t", 0): asked})
    cluster.brokers = {broker: BrokerIncarnation(broker, "host", 9092, broker) for broker in (1, 2)}

    class Znodes:
        async def get(self, path: str, watch: object = None) -> tuple[bytes, Any]:
            data = znodes.encode(znodes.ReassignmentList([asked])) if path == REASSIGN else b"nonsense"
            return data, SimpleNamespace(czxid=7, version=3)

    zookeeper: Any = Znodes()
    active: Any = SimpleNamespace(
        cluster=cluster, term=SimpleNamespace(epoch=1), broadcast=SimpleNamespace(send=lambda: None)
    )
    unused: Any = None
    reassignments = Reassignments(zookeeper, unused, unused, unused, lambda: again.append(True), unused)
    asyncio.run(reassignments.perform_steps(active, lambda _: None))
    assert again == [True]


def test_topics_are_read_before_an_entry_of_an_unknown_one_is_judged() -> None:
    """A tool makes a topic and asks for its move at once; the controller may hear of the latter first."""
    asked, learned = Entry("t", 0, [1, 2]), []
    cluster = ClusterState(topics={}, moves={})
    cluster.brokers = {broker: BrokerIncarnation(broker, "host", 9092, broker) for broker in (1, 2)}

    class Znodes:
        async def get(self, path: str, watch: object = None) -> tuple[bytes, Any]:
            return znodes.encode(znodes.ReassignmentList([asked])), SimpleNamespace(czxid=7, version=3)

    async def learn(active: Any) -> None:
        learned.append(dict(active.cluster.moves))
        active.cluster.topics["t"] = Topic(7, {0: [1]}, VersionedSettings({}, 7))

    zookeeper: Any = Znodes()
    active: Any = SimpleNamespace(cluster=cluster)
    unused: Any = None
    reassignments = Reassignments(zookeeper, unused, unused, unused, unused, learn)
    assert asyncio.run(reassignments.list_in_progress(active)) == [(asked, [1])]
    assert asyncio.run(reassignments.list_in_progress(active)) == [(asked, [1])]
    assert learned == [{}], "once, as nothing is new then"


@pytest.mark.parametrize("step", [0, 1], ids=["grow", "switch"])
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_step_whose_answer_is_lost_is_sent_with_the_replicas_that_it_gave(
    step: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller hears nothing from ZooKeeper from that write on, until a while after it was given up."""
    write = FencedWriter.write
    steps = 0

    async def check() -> None:
        async with moving() as test:
            controller = await test.cluster.controller()

            async def lossy(fence: FencedWriter, operations: Sequence[Any]) -> list[Any]:
                nonlocal steps
                steps += any(operation.path == paths.topic(TOPIC) for operation in operations)
                if steps != step + 1:
                    return await write(fence, operations)
                steps += 1
                await controller.drop_from(test.cluster.zookeepers)
                try:
                    return await write(fence, operations)
                finally:
                    healing.append(asyncio.ensure_future(heal()))

            async def heal() -> None:
                await asyncio.sleep(seconds)
                await test.cluster.heal()

            healing: list[asyncio.Future[None]] = []
            monkeypatch.setattr(FencedWriter, "write", lossy)
            async with load(test):
                await test.ask([2, 3, 4])
                await test.moved([2, 3, 4])
            assert len(test.events("assignment-written")) == 1, "that the other step was done was not known"
            assert await test.cluster.controller() is controller
            assert len(healing) == 1

    simulate(check)


# -- by Admin --------------------------------------------------------------------------------------------------------


def test_admin_starts_moves_follows_them_and_says_what_it_refuses() -> None:
    async def check() -> None:
        async with moving() as test:
            partition, admin = (TOPIC, 0), test.admin
            refused = await admin.reassign({partition: [1, 9], (TOPIC, 5): [1], ("orders", 0): [2, 2]})
            assert {p: (known.outcome, known.error) for p, known in refused.items()} == {
                partition: (Certainty.NOT_DONE, E.INVALID_REPLICA_ASSIGNMENT),
                (TOPIC, 5): (Certainty.NOT_DONE, E.UNKNOWN_TOPIC_OR_PARTITION),
                ("orders", 0): (Certainty.NOT_DONE, E.INVALID_REPLICA_ASSIGNMENT),
            }
            assert await test.gone()
            await test.held_back(4)
            wanted = {partition: [2, 3, 4]}
            for _ in range(2):  # the second time it is so already
                assert (await admin.reassign(wanted))[partition].outcome is Certainty.DONE
            await until(lambda: len(test.events("assignment-written")) == 1, "the new replica is assigned")
            assert await admin.reassignments() == {partition: Move((1, 2, 3, 4), (2, 3, 4), ())}
            assert await admin.verify(wanted) == {partition: MoveState.IN_PROGRESS}
            assert await admin.verify({partition: [1, 2]}) == {partition: MoveState.FAILED}, "it goes elsewhere"
            assert (await admin.reassign({partition: [1, 2]}))[partition].error is E.INVALID_REQUEST
            await test.cluster.heal()
            await test.moved([2, 3, 4])
            assert await admin.reassignments() == {}
            verified = await admin.verify({**wanted, ("orders", 0): [1, 2, 3, 4], ("nothing", 0): [1]})
            assert verified == {
                partition: MoveState.DONE,
                ("orders", 0): MoveState.FAILED,
                ("nothing", 0): MoveState.FAILED,
            }
            view = (await admin.describe([TOPIC])).topics[TOPIC].partitions[0]
            assert view.replicas == (2, 3, 4)

    simulate(check)


def test_to_ask_again_for_what_is_under_way_or_done_is_no_refusal_although_a_replica_has_died() -> None:
    """Else a client without an answer to its first request would learn that nothing was done."""

    async def check() -> None:
        async with moving() as test:
            partition, admin = (TOPIC, 0), test.admin
            await test.held_back(4)
            assert (await admin.reassign({partition: [2, 3, 4]}))[partition].outcome is Certainty.DONE
            await dead(test, 4)
            assert (await admin.reassign({partition: [2, 3, 4]}))[partition].outcome is Certainty.DONE
            await test.cluster.heal()
            await test.node(4).start()
            await test.moved([2, 3, 4])
            await dead(test, 4)
            assert (await admin.reassign({partition: [2, 3, 4]}))[partition].outcome is Certainty.DONE
            assert (await admin.reassign({partition: [1, 4]}))[partition].error is E.INVALID_REPLICA_ASSIGNMENT

    simulate(check)
