"""Groups on a cluster: who is in, who owns, what was committed, and that all of it survives its coordinator."""

from __future__ import annotations

import asyncio

import pytest

from assay.system_under_test.client.admin import Admin, NewTopic
from assay.system_under_test.client.errors import Certainty, SendFailed
from assay.system_under_test.deployment import Broker
from assay.system_under_test.network.connection import Connection
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.group_offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from assay.system_under_test.protocol.groups import GroupCoordinatorRequest, GroupProtocol, JoinGroupRequest
from assay.system_under_test.protocol.metadata import MetadataRequest

from helpers.group_client import Member, all_in, ask, coordinator, listed
from helpers.sim_brokers import Brokers, brokers, simulate, until


async def kill_coordinator(cluster: Brokers, group: str = "g") -> None:
    address = await coordinator(cluster, group)
    node = next(node for node in cluster.nodes if node.address == address)
    await node.kill()


def test_the_offsets_topic_is_made_for_the_first_who_asks_and_is_internal() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            first = await ask(cluster.nodes[0].address, GroupCoordinatorRequest(group_id="g"))
            assert first.error_code == ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
            await coordinator(cluster)
            metadata = await ask(cluster.nodes[0].address, MetadataRequest(topics=None), 1)
            internal = {topic.topic: topic.is_internal for topic in metadata.topics}
            assert internal == {"__consumer_offsets": True, "orders": False}

    simulate(check)


def test_the_finder_names_the_coordinator_of_a_group_and_the_next_one_once_it_is_dead() -> None:
    async def check() -> None:
        async with brokers(Broker(groups=("g",))) as cluster:
            address = await coordinator(cluster)
            found = await cluster.system.find(cluster.cluster, "coordinator", "g")
            assert found is not None
            assert found.address == address
            leader = await cluster.system.find(cluster.cluster, "coordinator", "g-" * 20)
            assert leader in cluster.nodes, "of any group, also of one without members"
            await found.kill()

            async def another() -> bool:
                now = await cluster.system.find(cluster.cluster, "coordinator", "g")
                return now is not None and now is not found

            await until(another, "the next coordinator is found")

    simulate(check)


def test_members_share_a_generation_and_each_gets_what_the_leader_gave_it() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            members = [Member(cluster) for _ in range(3)]
            await all_in(*members)
            assert len({member.member_id for member in members}) == 3
            assert sum(member.leader for member in members) == 1
            assert [member.assignment.decode() for member in members] == [member.member_id for member in members]
            described = await members[0].described()
            assert (described.state, described.protocol, len(described.members)) == ("Stable", "range", 3)
            assert await listed(cluster) == ["g"]

    simulate(check)


def test_a_member_that_leaves_and_one_that_falls_silent_are_replaced_in_a_new_generation() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one, two, three = (Member(cluster, session_timeout_ms=2000) for _ in range(3))
            await all_in(one, two, three)
            before = one.generation
            assert await two.leave() == ErrorCode.NONE
            assert await one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            await all_in(one, three)
            assert one.generation > before
            assert await two.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

            async def alone() -> bool:  # three says nothing any more
                if await one.heartbeat() != ErrorCode.NONE:
                    await one.enter()
                return len((await one.described()).members) == 1

            await until(alone, "the silent member is gone", 10)

    simulate(check)


def test_an_old_generation_and_a_stranger_can_neither_commit_nor_live() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            zombie, fresh = Member(cluster), Member(cluster)
            await all_in(zombie)
            assert await zombie.commit(5) == ErrorCode.NONE
            old = zombie.generation
            await asyncio.gather(fresh.enter(), zombie.enter())
            await all_in(zombie, fresh)
            assert await zombie.commit(9, generation_id=old) == ErrorCode.ILLEGAL_GENERATION
            assert await zombie.commit(9, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await zombie.commit(9, generation_id=-1, member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
            assert await fresh.committed() == 5
            assert await fresh.commit(6) == ErrorCode.NONE
            assert await zombie.committed() == 6

    simulate(check)


def test_anybody_commits_to_a_group_without_members() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            client = Member(cluster, group="tool")
            assert await client.committed() == -1
            assert await client.commit(3) == ErrorCode.NONE
            assert await client.committed() == 3
            assert await client.committed(version=2) == 3
            assert await client.commit(4, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await client.commit(4, partition=99) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await client.commit(4, metadata="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
            assert (await client.described()).state == "Empty"

    simulate(check)


def test_the_offsets_of_a_deleted_topic_go_with_it_and_a_new_topic_of_its_name_begins_without() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            cluster._open.append(admin)
            tool, member, reader = Member(cluster, group="tool"), Member(cluster), Member(cluster, group="reader")
            again = NewTopic("again", partitions=2, replication=3)
            await admin.create_topics([again])
            await all_in(member)
            for client in (tool, member):
                assert await client.commit(5, topic="again") == ErrorCode.NONE
                assert await client.commit(6, topic="again", partition=1) == ErrorCode.NONE
                assert await client.commit(7) == ErrorCode.NONE
            await admin.delete_topics(["again"])
            await admin.create_topics([again])

            async def gone() -> bool:
                found = [await client.committed(p, "again") for client in (tool, member) for p in (0, 1)]
                return found == [-1] * 4

            await until(gone, "no group has an offset of the deleted topic")
            assert await tool.commit(1, topic="again") == ErrorCode.NONE
            await kill_coordinator(cluster, "tool")
            assert [await tool.committed(0, "again"), await tool.committed(1, "again")] == [1, -1]
            assert [await tool.committed(), await member.committed()] == [7, 7], "of another topic"
            assert await reader.committed(0, "again") == -1

    simulate(check)


def test_a_coordinator_that_learns_late_of_a_deletion_keeps_the_offsets_of_the_new_topic() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime(), timeout=3.0)
            cluster._open.append(admin)
            controller = await cluster.controller()
            groups = [f"tool{number}" for number in range(16)]
            places = {group: await coordinator(cluster, group) for group in groups}
            group = next(group for group, address in places.items() if address != controller.address)
            late = next(node for node in cluster.nodes if node.address == places[group])
            holder = next(node for node in cluster.nodes if node not in (controller, late))
            again, tool = NewTopic("again", assignment={0: [holder.index]}), Member(cluster, group=group)

            async def is_created() -> bool:
                return (await admin.create_topics([again]))["again"].outcome is Certainty.DONE

            async def is_committed() -> bool:
                return await tool.commit(1, topic="again") == ErrorCode.NONE

            await until(is_created, "the topic exists")
            assert await tool.commit(5, topic="again") == ErrorCode.NONE
            await cluster.cut(controller, [late])
            await admin.delete_topics(["again"])
            if not await is_created():  # the deletion waits for the coordinator
                await cluster.heal()
                await until(is_created, "the topic exists again")
            await until(is_committed, "an offset of the new topic is committed")
            await cluster.heal()
            await asyncio.sleep(5)
            assert await tool.committed(0, "again") == 1

    simulate(check)


def test_version_0_keeps_offsets_in_zookeeper_and_apart() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            client = Member(cluster, group="old")
            assert await client.committed(version=0) == -1
            assert await client.commit(7, version=0) == ErrorCode.NONE
            assert await client.committed(version=0) == 7
            assert await client.committed() == -1

    simulate(check)


@pytest.mark.parametrize("version", [0, 2])
def test_a_partition_that_is_named_twice_is_committed_as_the_answer_says(version: int) -> None:
    async def check() -> None:
        async with brokers() as cluster:
            client = Member(cluster, group="tool")
            assert await client.commit(3, version=version) == ErrorCode.NONE
            good, bad = (
                OffsetCommitPartition(partition=0, offset=5, metadata=metadata) for metadata in ("", "x" * 5000)
            )
            for given, code, offset in (
                ([good, bad], ErrorCode.OFFSET_METADATA_TOO_LARGE, 3),
                ([bad, good], ErrorCode.NONE, 5),
            ):
                request = OffsetCommitRequest(
                    group_id="tool", topics=[OffsetCommitTopic(topic="orders", partitions=given)]
                )
                answer = await ask(await coordinator(cluster, "tool"), request, version)
                assert [one.error_code for one in answer.topics[0].partitions] == [code, code]
                assert await client.committed(version=version) == offset

    simulate(check)


def test_members_generation_and_offsets_survive_the_coordinator_without_a_rebalance() -> None:
    async def check() -> None:
        async with brokers(Broker(partitions=1)) as cluster:
            one, two = (Member(cluster, session_timeout_ms=30_000) for _ in range(2))
            await all_in(one, two)
            assert await one.commit(11) == ErrorCode.NONE
            before = one.generation
            await kill_coordinator(cluster)
            assert await one.heartbeat() == ErrorCode.NONE
            assert await two.heartbeat() == ErrorCode.NONE
            assert await two.committed() == 11
            assert one.generation == before
            assert (await one.described()).state == "Stable"
            assert await one.commit(12) == ErrorCode.NONE
            late = Member(cluster)
            await asyncio.gather(late.enter(), one.enter(), two.enter())
            await all_in(one, two, late)
            assert late.generation > before, "no generation is given twice"

    simulate(check)


def test_a_generation_whose_assignment_was_never_stored_is_joined_again_after_a_failover() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            one = Member(cluster, session_timeout_ms=30_000)
            assert await one.join() == ErrorCode.NONE
            before = one.generation
            await kill_coordinator(cluster)
            assert await one.sync() == ErrorCode.REBALANCE_IN_PROGRESS
            await one.enter()
            assert one.generation > before

    simulate(check)


def test_a_client_of_any_name_becomes_a_member_with_an_id_that_can_be_stored() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=6000,
                rebalance_timeout_ms=6000,
                member_id="",
                protocol_type="consumer",
                protocols=[GroupProtocol(name="range", metadata=b"")],
            )
            connection = await Connection.open(await coordinator(cluster), 9092, 1.0, "x" * 32_760)
            try:
                answer = await connection.call(request, 1, 20.0)
            finally:
                await connection.close()
            assert answer.error_code == ErrorCode.NONE
            assert answer.member_id.startswith("x" * 249 + "-")
            assert len(answer.member_id) < 300

    simulate(check)


def test_a_commit_that_too_few_had_counts_when_enough_have_it_again() -> None:
    """After 15, which means unknown, a broker that is asked later must not know more than one that was asked before."""

    async def check() -> None:
        async with brokers() as cluster:
            client = Member(cluster, group="tool")
            assert await client.commit(5) == ErrorCode.NONE
            address = await coordinator(cluster, "tool")
            followers = [node for node in cluster.nodes if node.address != address]
            for node in followers:
                await node.stop()
            request = OffsetCommitRequest(
                group_id="tool",
                generation_id=-1,
                member_id="",
                retention_time_ms=-1,
                topics=[OffsetCommitTopic(topic="orders", partitions=[OffsetCommitPartition(
                    partition=0, offset=9, metadata="")])],
            )  # fmt: skip
            answer = await ask(address, request, 2)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_COORDINATOR_NOT_AVAILABLE
            for node in followers:
                await node.resume()

            async def known() -> bool:
                return await client.committed() == 9

            await until(known, "the commit has come about", 30)
            await kill_coordinator(cluster, "tool")
            assert await client.committed() == 9

    simulate(check)


def test_the_offsets_topic_is_the_same_however_it_comes_to_be_and_does_not_grow() -> None:
    async def check() -> None:
        async with brokers(Broker(auto_create_topics=True, auto_create_partitions=2)) as cluster:

            async def made() -> bool:
                answer = await ask(cluster.nodes[0].address, MetadataRequest(topics=["__consumer_offsets"]), 1)
                return [len(part.replicas) for part in answer.topics[0].partitions] == [3] * 8

            await until(made, "it is made as coordinators need it")
            admin = Admin(cluster.bootstrap, runtime=cluster.cluster.harness_runtime())
            cluster._open.append(admin)
            assert (await admin.describe_config("__consumer_offsets"))["cleanup.policy"] == "compact"
            refused = await admin.create_partitions("__consumer_offsets", 9)
            assert (refused.outcome, refused.error) == (Certainty.NOT_DONE, ErrorCode.INVALID_TOPIC)

    simulate(check)


def test_the_limit_for_messages_of_users_is_no_limit_for_a_group() -> None:
    async def check() -> None:
        async with brokers(Broker().with_setting("max.message.bytes", "400")) as cluster:
            member = Member(cluster, protocols={"range": b"topics" * 100})
            assert await member.join() == ErrorCode.NONE
            assert await member.sync() == ErrorCode.NONE

    simulate(check)


def test_no_one_but_brokers_writes_the_offsets_topic() -> None:
    async def check() -> None:
        async with brokers() as cluster:
            await coordinator(cluster)
            with pytest.raises(SendFailed) as refused:
                await cluster.producer.send("__consumer_offsets", 0, [(b"k", b"v")])
            assert refused.value.error is ErrorCode.INVALID_TOPIC

    simulate(check)
