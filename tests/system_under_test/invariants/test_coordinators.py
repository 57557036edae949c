"""Whether a coordinator goes by its log: commits and loads that contradict it, and the nearest that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.groups.records import (
    VALUE_VERSION,
    GroupRecord,
    GroupValue,
    OffsetRecord,
    OffsetValue,
    compute_fingerprint,
    encode_group,
    encode_offset,
)
from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.invariants.coordinators import CoordinatorFold
from assay.system_under_test.invariants.invariant import EventLine
from assay.system_under_test.invariants.roles import ObservedRoles
from assay.system_under_test.invariants.watermarks import InSyncMemberCheck
from assay.system_under_test.records import message_set

from helpers.replica_disks import DATA, cluster, log

TOPIC = "__consumer_offsets"
KEY = f"{TOPIC}-0"
ZXID = 3
Record = tuple[bytes, bytes | None]


def generation(number: int | None, group: str = "g") -> Record:
    value = GroupValue(
        version=VALUE_VERSION,
        protocol_type="consumer",
        generation=number or 0,
        protocol="range",
        leader=None,
        members=[],
    )
    return encode_group(GroupRecord(group, None if number is None else value))


def offset(number: int | None, partition: int = 0, group: str = "g") -> Record:
    value = OffsetValue(version=VALUE_VERSION, offset=number or 0, metadata="", commit_timestamp=1, expire_timestamp=2)
    return encode_offset(OffsetRecord(group, "orders", partition, None if number is None else value))


class Scene:
    """n1 coordinates in epoch 4, from where its log ends at first; all three brokers have that log."""

    def __init__(self, *records: Record) -> None:
        self.inspection: AcknowledgementInspection = cluster(TOPIC, ZXID)
        nodes = self.inspection.brokers
        named = {node.name: node for node in nodes.values()}
        self.roles = ObservedRoles(named)
        members = InSyncMemberCheck(self.roles, self.inspection, nodes)
        self.invariant = CoordinatorFold(self.roles, members, self.inspection, named)
        self.records: list[Record] = []
        self.time = 0.0
        for index in (1, 2, 3):
            log(nodes[index], KEY, b"")
            self.says("recovered", index=index)
        self.append(records)
        self.lead(1, 4)

    def append(self, records: Sequence[Record], *, on: Sequence[int] = (1, 2, 3)) -> None:
        data = message_set.build([(key, value, 5) for key, value in records], base_offset=len(self.records))
        for index in on:
            disk: SimDisk = self.inspection.brokers[index].disk
            disk.storage().open(f"{DATA}/{KEY}/{0:020}.log".lstrip("/")).append(data)
        self.records += records

    def rewrite(self, positions: Iterable[int], *, on: Sequence[int] = (1, 2, 3)) -> None:
        """Other files with these records alone, as compaction leaves them, or a cut."""
        data = b"".join(message_set.build([(*self.records[at], 5)], base_offset=at) for at in positions)
        for index in on:
            log(self.inspection.brokers[index], KEY, data)

    def lead(self, index: int, epoch: int) -> None:
        self.says("became-leader", index=index, epoch=epoch, position=len(self.records), isr=[1, 2, 3])

    def says(self, event: str, key: str = KEY, index: int = 1, **given: Any) -> list[str]:
        self.time += given.pop("after", 1.0)
        line = EventLine(event, index, 1, self.time, key=key, **({"topic_zxid": ZXID} | given))
        self.roles.apply(f"n{index}", line)
        return [broken.claim for broken in self.invariant.event(f"n{index}", line)]

    def loads(self, generations: dict[str, int], offsets: dict[tuple[str, str, int], int], **given: Any) -> list[str]:
        detail = {"fingerprint": compute_fingerprint(generations, offsets)}
        return self.says("groups-loaded", **({"epoch": 4, "value": len(generations), "detail": detail} | given))

    def accepts(self, number: int, epoch: int = 3, **given: Any) -> list[str]:
        return self.says("offset-commit", "g", epoch=epoch, detail={"offsets": {"orders-0": number}}, **given)


BEFORE = (generation(3), offset(10), offset(20, 1), offset(11), generation(1, "h"))


def test_what_was_loaded_is_the_last_record_of_each_key() -> None:
    offsets = {("g", "orders", 0): 11, ("g", "orders", 1): 20}
    assert not Scene(*BEFORE).loads({"g": 3, "h": 1}, offsets)
    for generations, loaded in [
        ({"g": 2, "h": 1}, offsets),
        ({"g": 3}, offsets),
        ({"g": 3, "h": 1}, offsets | {("g", "orders", 0): 10}),
        ({"g": 3, "h": 1}, {("g", "orders", 0): 11}),
    ]:
        assert Scene(*BEFORE).loads(generations, loaded) == [
            "n1 coordinates the groups of __consumer_offsets-0 in leader epoch 4, and did not load what its log has "
            "below 5: 2 groups with 2 offsets."
        ]


def test_what_has_a_tombstone_is_not_loaded_and_a_group_may_have_offsets_alone() -> None:
    gone = (*BEFORE, offset(None), generation(None, "h"), generation(None))
    assert not Scene(*gone).loads({"g": 0}, {("g", "orders", 1): 20})


def test_what_was_written_since_the_term_began_was_not_loaded() -> None:
    scene = Scene(*BEFORE[:1])
    scene.append([offset(50)])
    assert not scene.loads({"g": 3}, {})


def ready() -> Scene:
    scene = Scene(*BEFORE)
    assert not scene.loads({"g": 3, "h": 1}, {("g", "orders", 0): 11, ("g", "orders", 1): 20})
    return scene


def test_a_commit_is_in_the_log_of_each_member_by_the_time_that_it_is_accepted() -> None:
    scene = ready()
    assert scene.accepts(12) == [
        "n1 accepted the commit of 12 for orders-0 by the group g, which is not in its log __consumer_offsets-0."
    ]
    scene.append([offset(12)], on=(1, 2))
    assert scene.accepts(12) == [
        "n1 had accepted commits of the group g, up to 5 of __consumer_offsets-0, when n3, a member of the in-sync "
        "set, held only the records below 5."
    ]
    other = ready()
    other.append([offset(12)])
    assert not other.accepts(12)


def test_an_empty_file_that_a_roll_that_failed_has_left_hides_nothing_of_the_log() -> None:
    scene = ready()
    for index in (1, 2, 3):
        log(scene.inspection.brokers[index], KEY, b"", base=len(BEFORE))
    assert scene.accepts(12)
    scene.append([offset(12)])
    assert not scene.accepts(12)
    scene.lead(1, 5)
    generations, offsets = {"g": 3, "h": 1}, {("g", "orders", 0): 12, ("g", "orders", 1): 20}
    assert not scene.loads(generations, offsets, epoch=5)


def test_a_commit_of_a_former_term_is_not_the_one_that_is_accepted_now() -> None:
    scene = ready()
    assert scene.accepts(11)
    scene.append([offset(11)])
    assert not scene.accepts(11)


def test_a_second_commit_of_the_same_offset_may_be_on_its_way() -> None:
    scene = ready()
    scene.append([offset(12)])
    scene.append([offset(12)], on=(1,))
    assert not scene.accepts(12)


def test_no_commit_is_accepted_before_the_groups_are_loaded() -> None:
    scene = Scene(*BEFORE)
    scene.append([offset(12)])
    assert scene.accepts(12) == ["n1 accepted a commit of the group g before it had loaded the groups of " + KEY + "."]
    late = ready()
    late.lead(1, 6)
    late.append([offset(12)])
    assert late.accepts(12), "it was loaded in another term"


def announced(scene: Scene) -> None:
    scene.append([generation(4)])
    scene.says("group-generation", "g", epoch=4)


def test_a_commit_of_a_former_generation_is_reported() -> None:
    scene = ready()
    announced(scene)
    scene.append([offset(12)])
    assert scene.accepts(12) == [
        "n1 accepted the commit of 12 for orders-0 by the group g, in generation 3, when 4 was stored."
    ]
    assert not scene.accepts(12, epoch=4)


def before_the_next(scene: Scene) -> None:
    scene.append([offset(12)])
    announced(scene)


def next_was_never_in_force(scene: Scene) -> None:
    scene.append([generation(4)])
    scene.append([offset(12)])


def next_was_in_force_later_alone(scene: Scene) -> None:
    next_was_never_in_force(scene)
    scene.lead(2, 5)
    scene.loads({"g": 4, "h": 1}, {("g", "orders", 0): 12, ("g", "orders", 1): 20}, index=2, epoch=5)


def began_again(scene: Scene) -> None:
    announced(scene)
    scene.append([generation(None), generation(1)])
    scene.append([offset(12)])


def forgotten_without_a_record(scene: Scene) -> None:
    announced(scene)
    scene.says("group-forgotten", "g", epoch=4)
    scene.append([offset(12)])


def of_another_group(scene: Scene) -> None:
    scene.append([generation(4, "h")])
    scene.says("group-generation", "h", epoch=4)
    scene.append([offset(12)])


def of_the_draft(scene: Scene) -> None:
    announced(scene)
    scene.says("draft-joined", "g", epoch=1)
    scene.append([offset(12)])


@pytest.mark.parametrize(
    "happens",
    [
        before_the_next, next_was_never_in_force, next_was_in_force_later_alone, began_again,
        forgotten_without_a_record, of_another_group, of_the_draft,
    ],
)  # fmt: skip
def test_a_commit_in_the_generation_that_is_in_force_is_right(happens: Callable[[Scene], None]) -> None:
    scene = ready()
    happens(scene)
    assert not scene.accepts(12)


def test_where_compaction_may_have_taken_the_record_of_a_commit_a_later_one_is_not_held_against_it() -> None:
    scene = ready()
    scene.append([offset(12)])
    announced(scene)
    scene.append([offset(12)], on=(1,))
    scene.rewrite([0, 2, 3, 4, 6, 7], on=(1,))
    assert not scene.accepts(12)


def test_a_segment_may_be_rolled_and_compacted_between_two_looks() -> None:
    scene = ready()
    later = (*offset(14), 5)
    for index in (1, 2, 3):
        log(scene.inspection.brokers[index], KEY, message_set.build([later], base_offset=6), base=5)
    assert not scene.accepts(12)
    whole = ready()
    for index in (1, 2, 3):
        log(whole.inspection.brokers[index], KEY, message_set.build([later], base_offset=5), base=5)
    assert "not in its log" in "".join(whole.accepts(12))


def test_what_was_seen_before_compaction_took_it_counts() -> None:
    scene = ready()
    announced(scene)
    scene.append([offset(12), offset(13)])
    assert not scene.accepts(13, epoch=4)
    scene.rewrite([0, 2, 3, 4, 5, 7])
    assert scene.accepts(12) == [
        "n1 accepted the commit of 12 for orders-0 by the group g, in generation 3, when 4 was stored."
    ]
    scene.append([offset(14)], on=(1,))
    assert "had accepted commits of the group g, up to 8" in "".join(scene.accepts(14, epoch=4))


def test_what_was_seen_in_a_former_term_and_cut_since_then_does_not_count() -> None:
    scene = ready()
    scene.append([offset(12), offset(13)])
    assert not scene.accepts(12)
    scene.rewrite(range(5))
    del scene.records[5:]
    scene.lead(1, 6)
    scene.loads({"g": 3, "h": 1}, {("g", "orders", 0): 11, ("g", "orders", 1): 20}, epoch=6)
    assert not scene.accepts(13)


def test_a_client_without_a_generation_commits_where_there_are_no_members() -> None:
    scene = ready()
    announced(scene)
    scene.append([offset(12)])
    assert not scene.accepts(12, epoch=-1)


def test_commits_are_looked_at_ten_times_a_second_and_when_the_term_is_over() -> None:
    def accepted(after: float, event: str, **given: Any) -> list[str]:
        scene = ready()
        scene.append([offset(12)])
        assert not scene.accepts(12)
        assert not scene.accepts(13, after=0.01)
        assert not scene.says("isr-change", isr=[1, 2, 3], epoch=4, after=0.01)
        return scene.says(event, after=after, **given)

    commit = {"key": "g", "epoch": 3, "detail": {"offsets": {"orders-0": 12}}}
    assert not accepted(0.01, "offset-commit", **commit)
    assert accepted(0.1, "offset-commit", **commit)
    assert accepted(0.01, "high-watermark", epoch=4)
    assert not accepted(0.01, "became-follower", epoch=5), "its log may be cut from now on"
