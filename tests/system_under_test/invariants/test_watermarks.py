"""Whether members of in-sync sets have what counts: one that lacks it, and the nearest that need not have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.system_under_test.inspection import AcknowledgementInspection
from assay.system_under_test.invariants.invariant import EventLine
from assay.system_under_test.invariants.roles import ObservedRoles
from assay.system_under_test.invariants.watermarks import AcknowledgedRecords, InSyncMemberCheck, RaisedHighWatermarks
from assay.system_under_test.zookeeper import paths

from helpers.replica_disks import DATA, cluster, entries, log

KEY = "orders-0"
ZXID = 7


class Scene:
    """A leader, n1, in epoch 4; the logs of all three brokers end at 3, that of n3 at 2."""

    def __init__(self, flushes: bool = False, members: tuple[int, ...] = (1, 2, 3)) -> None:
        self.inspection: AcknowledgementInspection = cluster("orders", ZXID, members=members, flushes=flushes)
        self.nodes = self.inspection.brokers
        self.roles = ObservedRoles({node.name: node for node in self.nodes.values()})
        self.raised = RaisedHighWatermarks(self.roles, InSyncMemberCheck(self.roles, self.inspection, self.nodes))
        for index in (1, 2, 3):
            log(self.nodes[index], KEY, entries(dict.fromkeys(range(3 if index < 3 else 2), "a")))
            self.says(index, "recovered")
        self.says(1, "became-leader", epoch=4, position=0, isr=list(members))
        for index in (2, 3):
            self.says(index, "became-follower", epoch=4)

    def says(self, index: int, event: str, **given: Any) -> list[str]:
        line = EventLine(event, index, 1, key=KEY, **({"topic_zxid": ZXID} | given))
        self.roles.apply(f"n{index}", line)
        return [broken.claim for broken in self.raised.event(f"n{index}", line)]

    def raises(self, mark: int, index: int = 1, epoch: int = 4) -> list[str]:
        return self.says(index, "high-watermark", epoch=epoch, high_watermark=mark)


def test_a_member_whose_log_ends_below_the_high_watermark_is_reported() -> None:
    scene = Scene()
    assert not scene.raises(2)
    assert scene.raises(3) == [
        "n1 had raised the high watermark of orders-0 to 3 in leader epoch 4, when n3, a member of the in-sync set, "
        "held only the records below 2."
    ]
    assert scene.raised.checks == 2


def obeys_a_higher_epoch(scene: Scene) -> None:
    scene.says(3, "became-follower", epoch=5)


def is_gone(scene: Scene) -> None:
    scene.nodes[3].alive_since = None


def stands_still(scene: Scene) -> None:
    scene.nodes[3].running = False


def was_started_again(scene: Scene) -> None:
    scene.nodes[3].alive_since = 2.0


def has_another_registration(scene: Scene) -> None:
    scene.inspection.tree.put(paths.broker(3), b"", 31)


def was_written_into(scene: Scene) -> None:
    scene.nodes[3].damaged = True


def topic_is_to_go(scene: Scene) -> None:
    scene.inspection.tree.put(paths.delete_topic("orders"), b"")


def topic_was_made_again(scene: Scene) -> None:
    state = scene.inspection.tree.znodes[paths.topic("orders")]
    scene.inspection.tree.put(paths.topic("orders"), state[0], ZXID + 1)


def left_the_set(scene: Scene) -> None:
    scene.says(1, "isr-proposed", epoch=4, isr=[1, 2])
    scene.says(1, "isr-change", epoch=4, isr=[1, 2])


@pytest.mark.parametrize(
    "happens",
    [
        obeys_a_higher_epoch, is_gone, stands_still, was_started_again, has_another_registration, was_written_into,
        topic_is_to_go, topic_was_made_again, left_the_set,
    ],
)  # fmt: skip
def test_who_need_not_have_it_is_not_reported(happens: Callable[[Scene], None]) -> None:
    scene = Scene()
    happens(scene)
    assert not scene.raises(3)


def test_of_a_new_partition_a_member_may_have_no_file_yet() -> None:
    scene = Scene()
    scene.nodes[3].disk.wipe(f"{DATA}/{KEY}")
    assert not scene.raises(0)
    assert scene.raises(1)[0].endswith("held only the records below 0.")


def test_one_that_is_only_proposed_counts_until_it_is_known_what_came_of_it() -> None:
    scene = Scene()
    left_the_set(scene)
    assert not scene.raises(3)
    scene.says(1, "isr-proposed", epoch=4, isr=[1, 2, 3])
    assert scene.raises(3)


def test_one_that_is_about_to_leave_counts() -> None:
    scene = Scene()
    scene.says(1, "isr-proposed", epoch=4, isr=[1, 2])
    assert scene.raises(3)


def test_only_a_leader_says_what_its_set_has() -> None:
    """A follower's mark is its leader's; a former leader's is said before its role ends."""
    scene = Scene()
    assert not scene.raises(3, index=2)
    assert not scene.raises(3, epoch=3)
    scene.says(1, "became-follower", epoch=5)
    assert not scene.raises(3, epoch=5)


def test_where_messages_are_flushed_what_is_not_durable_does_not_count() -> None:
    def found(flushes: bool) -> list[str]:
        scene = Scene(flushes=flushes, members=(1, 2))
        path = f"{DATA}/{KEY}/{0:020}.log"
        scene.nodes[2].disk.storage().open(path.lstrip("/")).append(entries({3: "b"}))
        log(scene.nodes[1], KEY, entries(dict.fromkeys(range(4), "a")))
        return scene.raises(4)

    assert found(flushes=True) == [
        "n1 had raised the high watermark of orders-0 to 4 in leader epoch 4, when n2, a member of the in-sync set, "
        "held durably only the records below 3."
    ]
    assert not found(flushes=False)


def acknowledged(position: int, happens: Callable[[Scene], None] = lambda scene: None) -> list[str]:
    scene = Scene()
    happens(scene)
    invariant = AcknowledgedRecords(scene.nodes.values())
    seen = scene.inspection.acknowledged(KEY, position)
    return [broken.claim for broken in invariant.check(KEY, position, seen)]


def test_an_acknowledged_record_is_on_each_member() -> None:
    assert not acknowledged(1)
    assert acknowledged(2) == [
        "offset 2 of orders-0 was acknowledged, when the log of n3, a member of the in-sync set, ended at 2."
    ]


def test_nothing_is_said_of_acknowledgements_once_something_may_be_lost() -> None:
    def loses(scene: Scene) -> None:
        scene.nodes[1].losses = 1

    assert not acknowledged(2, loses)
    assert not acknowledged(2, was_written_into)
