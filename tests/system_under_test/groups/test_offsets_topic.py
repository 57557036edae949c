"""The offsets topic cannot be deleted by request. If someone deletes it in ZooKeeper, groups recover by themselves."""

from __future__ import annotations

import pytest

from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.config import ConsumerConfig, DraftConfig
from assay.system_under_test.client.coordinated import CommitFailed
from assay.system_under_test.client.draft_consumer import DraftConsumer
from assay.system_under_test.client.errors import Certainty, ReadFailed
from assay.system_under_test.client.group_consumer import GroupConsumer
from assay.system_under_test.client.membership import JoinFailed
from assay.system_under_test.deployment import Broker
from assay.system_under_test.groups.draft.metadata import CoordinatorDisplaced, GroupMetadata, MetadataStore
from assay.system_under_test.groups.terms import find_partition
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.groups import GroupCoordinatorRequest
from assay.system_under_test.runtime import ZooKeeper
from assay.system_under_test.zookeeper import paths, znodes

from helpers.group_client import ask, coordinator
from helpers.sim_brokers import Brokers, brokers, simulate, until, zookeeper_of

TOPIC = "__consumer_offsets"
GROUPS = [f"group-{number}" for number in range(30)]


async def delete_tree(zookeeper: ZooKeeper, path: str) -> None:
    """As the shell's ``deleteall`` does; what is made meanwhile is deleted as well."""
    for child in await zookeeper.get_children(path):
        await delete_tree(zookeeper, f"{path}/{child}")
    await zookeeper.delete(path)


async def make(zookeeper: ZooKeeper, partitions: int) -> None:
    replicas = {str(index): [1 + (index + shift) % 3 for shift in range(3)] for index in range(partitions)}
    await zookeeper.create(f"/brokers/topics/{TOPIC}", znodes.encode(znodes.TopicAssignment(replicas)))


def admin_of(cluster: Brokers) -> Admin:
    admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
    cluster._open.append(admin)
    return admin


async def named(cluster: Brokers) -> dict[str, set[int]]:
    """Who coordinates each group, by all brokers; -1 where one does not say."""
    answers: dict[str, set[int]] = {}
    for group in GROUPS:
        for node in cluster.nodes:
            answer = await ask(node.address, GroupCoordinatorRequest(group_id=group))
            answers.setdefault(group, set()).add(-1 if answer.error_code else answer.coordinator_id)
    return answers


async def agreed(cluster: Brokers) -> None:
    async def now() -> bool:
        answers = await named(cluster)
        return all(len(found) == 1 and -1 not in found for found in answers.values())

    await until(now, "all brokers name the same coordinators", 30)


def test_a_request_to_create_it_is_rejected_so_that_offsets_do_not_expire_by_other_settings() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            admin = admin_of(cluster)
            wanted = NewTopic(TOPIC, partitions=1, replication=1, configs={"cleanup.policy": "delete"})
            refused = (await admin.create_topics([wanted]))[TOPIC]
            assert (refused.outcome, refused.error) == (Certainty.NOT_DONE, ErrorCode.INVALID_TOPIC)
            assert refused.message == "topic '__consumer_offsets' is the brokers' own; they create it"
            await coordinator(cluster)
            zookeeper = await zookeeper_of(cluster)
            settings, _ = await zookeeper.get(paths.topic_config(TOPIC))
            assert b'"cleanup.policy":"compact"' in settings
            await zookeeper.close()

    simulate(check)


def test_a_request_to_delete_it_is_rejected_and_says_why() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await coordinator(cluster)
            zookeeper = await zookeeper_of(cluster)
            before = await zookeeper.exists(paths.topic(TOPIC))
            refused = (await admin_of(cluster).delete_topics([TOPIC]))[TOPIC]
            assert (refused.outcome, refused.error) == (Certainty.NOT_DONE, ErrorCode.INVALID_TOPIC)
            assert refused.message == "topic '__consumer_offsets' is the brokers' own; it cannot be deleted"
            assert await zookeeper.get_children(paths.DELETE_TOPICS) == []
            await zookeeper.create(paths.delete_topic(TOPIC))

            async def unmarked() -> bool:
                return await zookeeper.get_children(paths.DELETE_TOPICS) == []

            await until(unmarked, "the mark is removed")
            assert await zookeeper.exists(paths.topic(TOPIC)) == before
            await zookeeper.close()

    simulate(check)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [None, 5, 16])
def test_groups_recover_when_it_was_deleted_in_zookeeper_also_with_another_number_of_partitions(
    partitions: int | None,
) -> None:
    """None: a broker makes it again, with the number that is configured."""

    async def check() -> None:
        async with brokers(Broker(partitions=2)) as cluster:
            zookeeper = await zookeeper_of(cluster)
            runtime = cluster.cluster.harness_runtime()
            config = ConsumerConfig(reset="earliest", session_timeout=2.0, rebalance_timeout=2.0, timeout=2.0)
            draft = DraftConfig(session_timeout=2.0, join_timeout=2.0, timeout=2.0)
            members = [
                GroupConsumer(cluster.bootstrap, "later", ["orders"], config, runtime=runtime),
                DraftConsumer(cluster.bootstrap, "draft", ["orders"], draft, runtime=runtime),
            ]
            cluster._open += members

            async def works(value: bytes) -> None:
                await cluster.producer.send("orders", 0, [(None, value)])
                for member in members:

                    async def read_and_committed(member: GroupConsumer = member) -> bool:
                        try:
                            records = await member.poll(0.5)
                            if not any(record.value == value for record in records):
                                return False
                            await member.commit()
                        except (JoinFailed, ReadFailed, CommitFailed):
                            return False
                        found = await member.committed([("orders", 0)])
                        return found["orders", 0].offset == records[-1].offset + 1

                    await until(read_and_committed, f"{type(member).__name__} reads and commits {value!r}", 40)

            await works(b"before")
            starts = [len(cluster.events(node, "registered")) for node in cluster.nodes]
            await delete_tree(zookeeper, paths.topic(TOPIC))
            if partitions is not None:
                await make(zookeeper, partitions)
            await agreed(cluster)
            await works(b"after")
            description = await zookeeper.get(paths.topic(TOPIC))
            made = znodes.decode(znodes.TopicAssignment, TOPIC, description[0])
            assert len(made.partitions) == (partitions or 8)
            for group, found in (await named(cluster)).items():
                led = f"{TOPIC}-{find_partition(group, len(made.partitions))}"
                assert found == {(await cluster.leader(led)).index}
            assert starts == [len(cluster.events(node, "registered")) for node in cluster.nodes], "none was restarted"
            await zookeeper.close()

    simulate(check)


def test_a_partition_that_is_added_by_hand_is_taken_back_and_groups_stay_where_they_are() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await coordinator(cluster)
            await agreed(cluster)
            before = await named(cluster)
            zookeeper = await zookeeper_of(cluster)
            data, stat = await zookeeper.get(paths.topic(TOPIC))
            known = znodes.decode(znodes.TopicAssignment, TOPIC, data)
            more = znodes.TopicAssignment(known.partitions | {"8": [1, 2, 3]})
            await zookeeper.set(paths.topic(TOPIC), znodes.encode(more), stat.version)

            async def put_back() -> bool:
                return (await zookeeper.get(paths.topic(TOPIC)))[0] == data

            await until(put_back, "the controller has put it back")
            await agreed(cluster)
            assert await named(cluster) == before
            await zookeeper.close()

    simulate(check)


def test_settings_that_a_deleted_topic_left_behind_do_not_keep_it_from_being_made_and_do_not_count() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            admin = admin_of(cluster)
            for name in ("one", "two"):
                left = znodes.TopicSettings({"retention.ms": "4711"})
                await zookeeper.create(paths.topic_config(name), znodes.encode(left))
            wanted = [NewTopic("one", 1, 1, configs={"flush.ms": "5"}), NewTopic("two", 1, 1)]
            made = await admin.create_topics(wanted)
            assert {outcome.outcome for outcome in made.values()} == {Certainty.DONE}
            assert await admin.describe_config("one") == {"flush.ms": "5"}
            assert await admin.describe_config("two") == {}
            await zookeeper.close()

    simulate(check)


def test_epochs_of_an_earlier_offsets_topic_count_less_than_those_of_a_later_one() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zookeeper = await zookeeper_of(cluster)
            first = MetadataStore(zookeeper, 7, topic_czxid=100)
            await first.write("g", GroupMetadata(7, 3, "range", {}, {}, {}), -1)
            later = MetadataStore(zookeeper, 0, topic_czxid=200)
            claimed = await later.claim("g")
            assert claimed is not None
            assert (claimed.value.generation, claimed.value.term) == (3, (200, 0))
            with pytest.raises(CoordinatorDisplaced):
                await first.write("g", GroupMetadata(7, 4, "range", {}, {}, {}), 0)
            with pytest.raises(CoordinatorDisplaced):
                await first.claim("g")
            await zookeeper.close()

    simulate(check)
