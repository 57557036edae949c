"""A broker shows clients the metadata that the controller sent it: whole topics only, and new leaders at once."""

from __future__ import annotations

from dataclasses import replace

from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.network.handler import RequestContext
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.internal import (
    LeaderAndIsrRequest,
    LiveBroker,
    PartitionStateUpdate,
    UpdateMetadataRequest,
)
from assay.system_under_test.protocol.metadata import MetadataRequest

LIVE = [LiveBroker(broker_id=n, host=f"h{n}", port=9092, broker_epoch=n) for n in (1, 2, 3)]


def state(partition: int, leader: int, leader_epoch: int = 0) -> PartitionStateUpdate:
    return PartitionStateUpdate(
        topic="t",
        topic_czxid=9,
        partition=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=[leader],
        member_epochs=[],
        elr=[],
        zk_version=0,
        replicas=[leader],
    )


def commanded(*states: PartitionStateUpdate) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, partitions=list(states), topics=[], live_brokers=LIVE
    )


def update(*states: PartitionStateUpdate) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1,
        full=False,
        partitions=list(states),
        deleted=[],
        live_brokers=LIVE,
    )


def leaders(cache: MetadataCache) -> list[int]:
    context = RequestContext(3, 2, 1, "client", "peer")
    return [p.leader for p in cache.answer(MetadataRequest(topics=["t"]), context).topics[0].partitions]


def test_a_new_leader_is_known_as_soon_as_it_is_commanded() -> None:
    cache = MetadataCache()
    cache.update(update(state(0, leader=1), state(1, leader=2)))
    cache.update_leaders(commanded(state(1, leader=3, leader_epoch=1)))
    assert leaders(cache) == [1, 3]


def test_a_new_topic_is_not_shown_by_halves() -> None:
    """A broker that replicates one partition of two is commanded for that one alone."""
    cache = MetadataCache()
    cache.update_leaders(commanded(state(1, leader=3)))
    assert leaders(cache) == []
    cache.update(update(state(0, leader=1), state(1, leader=3)))
    assert leaders(cache) == [1, 3]


def test_new_partitions_of_a_topic_are_not_shown_by_halves() -> None:
    cache = MetadataCache()
    cache.update(update(state(0, leader=1)))
    cache.update_leaders(commanded(state(2, leader=3)))
    assert leaders(cache) == [1]


def test_a_copy_that_comes_late_is_no_news() -> None:
    """It was sent before the connection was given up, and the request has been answered on another one since."""
    cache = MetadataCache()
    before = replace(update(state(0, leader=1), state(1, leader=2)), serial=7)
    cache.update(before)
    cache.update_leaders(replace(commanded(state(1, leader=3, leader_epoch=1)), serial=8))
    cache.update(replace(update(state(1, leader=3, leader_epoch=1)), serial=8))
    cache.update(before)
    cache.update_leaders(replace(commanded(state(1, leader=2)), serial=7))
    assert leaders(cache) == [1, 3]


def test_the_next_controller_counts_from_the_beginning_and_who_does_not_count_is_heard() -> None:
    cache = MetadataCache()
    cache.update(replace(update(state(0, leader=1)), serial=7))
    cache.update(replace(update(state(0, leader=2)), controller_epoch=2, serial=1))
    assert leaders(cache) == [2]
    cache.update(update(state(0, leader=3)))
    assert leaders(cache) == [3]
    cache.update(replace(update(state(0, leader=1)), serial=9))
    assert leaders(cache) == [3], "the former controller"


def test_no_topic_is_unknown_before_the_controller_has_sent_all() -> None:
    def error(cache: MetadataCache, topic: str) -> int:
        context = RequestContext(3, 2, 1, "client", "peer")
        return cache.answer(MetadataRequest(topics=[topic]), context).topics[0].error_code

    cache = MetadataCache()
    cache.update(replace(update(state(0, leader=1)), serial=1))
    assert error(cache, "t") == ErrorCode.NONE
    assert error(cache, "other") == ErrorCode.LEADER_NOT_AVAILABLE
    cache.update(replace(update(state(0, leader=1)), full=True, serial=2))
    assert error(cache, "t") == ErrorCode.NONE
    assert error(cache, "other") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
