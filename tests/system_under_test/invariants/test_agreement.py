"""Whether replicas hold the same: records that contradict each other, and the nearest that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.system_under_test.invariants.agreement import ReplicaAgreement
from assay.system_under_test.invariants.invariant import EventLine
from assay.system_under_test.invariants.roles import ObservedRoles
from assay.system_under_test.records import message_set
from assay.system_under_test.records.compression import GZIP

from helpers.replica_disks import DATA, Node, entries, log, mark

KEY = "orders-0"
ABC = {0: "a", 1: "b", 2: "c"}
AXC = ABC | {1: "x"}


class Scene:
    """Two brokers, each with a log, and a third without one."""

    def __init__(self) -> None:
        self.nodes = {f"n{index}": Node(index) for index in (1, 2, 3)}
        self.roles = ObservedRoles(self.nodes)
        self.invariant = ReplicaAgreement(self.roles, self.nodes, DATA)

    def says(self, node: str, event: str, **given: Any) -> list[str]:
        """Returns what is broken with this event."""
        line = EventLine(event, int(node[1:]), given.pop("incarnation", 1), key=KEY, **({"topic_zxid": 7} | given))
        self.roles.apply(node, line)
        return [broken.claim for broken in self.invariant.event(node, line)]

    def has(self, node: str, records: dict[int, str], below: int, **given: Any) -> list[str]:
        """Returns what is broken when it has recovered this log, with this high watermark."""
        log(self.nodes[node], KEY, entries(records), **given)
        mark(self.nodes[node], "orders", below)
        return self.says(node, "recovered")


def test_different_records_below_both_high_watermarks_are_reported_with_the_first_offset() -> None:
    scene = Scene()
    assert not scene.has("n1", ABC, 3)
    (claim,) = scene.has("n2", AXC | {2: "y"}, 3)
    assert claim.startswith("n2 has a record with the CRC ")
    assert ", of leader epoch 0, at offset 1 of orders-0, below its high watermark 3; n1 had one with " in claim


def test_equal_records_of_different_epochs_are_reported() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3, epochs=((0, 0), (2, 2)))
    (claim,) = scene.has("n2", ABC, 3, epochs=((0, 0), (1, 2)))
    assert "of leader epoch 1, at offset 2 of orders-0" in claim
    same = Scene()
    same.has("n1", ABC, 3, epochs=((0, 0), (2, 2)))
    assert not same.has("n2", ABC, 3, epochs=((0, 0), (2, 2), (4, 3)))
    assert same.invariant.checks == 6


def test_what_is_above_the_high_watermark_of_one_may_differ() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    assert not scene.has("n2", AXC, 1)
    other = Scene()
    other.has("n1", AXC, 1)
    assert not other.has("n2", ABC, 3)


def test_what_a_log_has_no_more_is_not_compared() -> None:
    """By retention, or by compaction."""
    scene = Scene()
    scene.has("n1", ABC, 3)
    assert not scene.has("n2", {0: "a", 2: "c"}, 3)
    late = Scene()
    late.has("n1", ABC, 3)
    assert not late.has("n2", {2: "c", 3: "d"}, 4, epochs=((0, 2),), base=2)


def test_a_log_that_went_on_before_an_empty_file_is_compared_to_its_end() -> None:
    """A roll that failed may leave one."""
    scene = Scene()
    scene.has("n1", ABC, 3)
    log(scene.nodes["n2"], KEY, b"", base=1)
    assert not scene.has("n2", {0: "a"}, 3)
    scene.nodes["n2"].disk.storage().open(f"{DATA}/{KEY}/{0:020}.log".lstrip("/")).append(entries({1: "x", 2: "c"}))
    assert scene.says("n2", "high-watermark", high_watermark=3)


def test_a_file_that_is_no_more_empty_is_read() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    log(scene.nodes["n2"], KEY, b"", base=2)
    assert not scene.has("n2", {0: "a", 1: "b"}, 3)
    log(scene.nodes["n2"], KEY, entries({2: "x"}), base=2)
    assert scene.says("n2", "high-watermark", high_watermark=3)


def test_a_committed_record_that_is_replaced_is_reported_though_no_one_has_it_any_more() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    scene.nodes["n1"].running = False
    assert not scene.has("n2", {0: "a"}, 1)
    assert scene.has("n2", AXC, 3)


def test_a_cut_above_the_high_watermark_and_other_records_then_are_right() -> None:
    scene = Scene()
    scene.has("n1", ABC, 1)
    assert not scene.has("n1", AXC, 3)
    assert scene.has("n1", ABC, 3), "but not once they counted"


def test_a_replica_whose_files_are_not_there_yet_has_nothing_to_compare() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    mark(scene.nodes["n2"], "orders", 3)
    assert not scene.says("n2", "recovered")
    assert scene.has("n2", AXC, 3)


def test_an_acknowledgement_counts_before_any_checkpoint() -> None:
    def learned(records: dict[int, str]) -> bool:
        scene = Scene()
        scene.has("n1", ABC, 0)
        scene.says("n1", "became-leader", epoch=1, position=3)
        scene.invariant.acknowledged(KEY, 1)
        scene.nodes["n1"].running = False
        return bool(scene.has("n2", records, 3))

    assert learned(AXC)
    assert not learned(ABC | {2: "y"})


@pytest.mark.parametrize("gone", [False, True], ids=["follows", "is gone and has begun again"])
def test_an_acknowledgement_does_not_count_for_a_leader_of_an_earlier_epoch(gone: bool) -> None:
    """Its leader leads no more as the client learns of it, and another that was away believes that it still does."""
    scene = Scene()
    scene.has("n1", AXC, 1)
    scene.says("n1", "became-leader", epoch=1, position=1)
    scene.has("n2", ABC, 3)
    scene.says("n2", "became-leader", epoch=2, position=1)
    if gone:
        scene.nodes["n2"].alive_since = 5.0
    else:
        scene.says("n2", "became-follower", epoch=3)
    scene.invariant.acknowledged(KEY, 2)
    assert not scene.says("n1", "high-watermark", epoch=1, high_watermark=1)
    assert scene.says("n1", "high-watermark", epoch=1, high_watermark=3), "it says so itself"


def test_an_acknowledgement_counts_for_the_topic_that_is_there_and_not_for_one_that_had_its_name() -> None:
    """Its leader may be gone, or have no replica of the new one, and so has written nothing since."""
    scene = Scene()
    scene.has("n1", ABC, 0)
    scene.says("n1", "became-leader", epoch=5, position=3)
    for name, records in (("n2", ABC), ("n3", AXC)):
        log(scene.nodes[name], KEY, entries(records))
        scene.says(name, "recovered", topic_zxid=8)
    scene.says("n2", "became-leader", epoch=1, position=3, topic_zxid=8)
    scene.invariant.acknowledged(KEY, 1)
    assert not scene.says("n2", "isr-change", topic_zxid=8)
    assert scene.says("n3", "high-watermark", high_watermark=3, topic_zxid=8)


LEFT_OUT: dict[str, Callable[[Node], Any]] = {
    "gone or standing still": lambda node: setattr(node, "running", False),
    "written into": lambda node: setattr(node, "damaged", True),
}


@pytest.mark.parametrize("change", LEFT_OUT.values(), ids=LEFT_OUT)
def test_who_cannot_be_believed_is_left_out(change: Callable[[Node], Any]) -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    change(scene.nodes["n2"])
    assert not scene.has("n2", AXC, 3)


def test_a_log_that_is_damaged_or_not_recovered_in_this_life_is_left_out() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    log(scene.nodes["n2"], KEY, entries(AXC))
    mark(scene.nodes["n2"], "orders", 3)
    assert not scene.says("n2", "high-watermark", epoch=0, high_watermark=3)
    assert not scene.says("n2", "recovered", detail={"damaged": True})
    assert scene.says("n2", "recovered", incarnation=2)


def test_the_log_of_a_process_that_has_begun_again_and_written_no_line_is_left_out_until_it_has_recovered() -> None:
    """A loss of power may have left anything behind what was fsynced, also below the high watermark."""
    scene = Scene()
    scene.has("n1", ABC, 3)
    scene.has("n2", ABC, 3)
    scene.nodes["n2"].losses = 1
    scene.says("n1", "became-leader", epoch=0, position=3)
    scene.says("n2", "became-follower", epoch=0)
    scene.says("n2", "reconciled", epoch=0)
    log(scene.nodes["n2"], KEY, entries(AXC))
    assert scene.says("n1", "high-watermark", epoch=0, high_watermark=3), "in the same life it is an error"
    scene.nodes["n2"].alive_since = 5.0
    assert not scene.says("n1", "high-watermark", epoch=0, high_watermark=3)
    assert not scene.has("n2", ABC, 3)


def test_a_topic_made_again_has_other_records() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    log(scene.nodes["n2"], KEY, entries(AXC))
    mark(scene.nodes["n2"], "orders", 3)
    assert not scene.says("n2", "recovered", topic_zxid=8)


def lost(scene: Scene) -> None:
    scene.nodes["n3"].losses = 1


def elected_uncleanly(scene: Scene) -> None:
    scene.says("n3", "partition-state-written", unclean=True)


@pytest.mark.parametrize("happens", [lost, elected_uncleanly])
def test_once_something_may_be_lost_only_those_are_compared_that_have_agreed_in_one_epoch(
    happens: Callable[[Scene], None],
) -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    happens(scene)
    assert not scene.has("n2", AXC, 3)
    assert not scene.says("n1", "became-leader", epoch=4, position=3)
    assert not scene.says("n2", "became-follower", epoch=4)
    assert not scene.says("n2", "high-watermark", epoch=4)
    assert scene.says("n2", "reconciled", epoch=4)


def test_one_that_agreed_in_an_earlier_epoch_may_differ_after_a_loss() -> None:
    scene = Scene()
    scene.has("n1", ABC, 3)
    lost(scene)
    scene.has("n2", AXC, 3)
    scene.says("n1", "became-leader", epoch=4, position=3)
    assert not scene.says("n2", "became-leader", epoch=3, position=3)


def test_a_compressed_set_that_one_replica_has_rebuilt_is_the_same() -> None:
    built = message_set.pack([(None, b"a", 5), (None, b"b", 5)], 1, GZIP)
    scene = Scene()
    log(scene.nodes["n1"], KEY, built)
    mark(scene.nodes["n1"], "orders", 2)
    scene.says("n1", "recovered")
    assert not scene.has("n2", {1: "b"}, 2)
    assert scene.has("n2", {1: "c"}, 2)
