"""Tests where a follower cuts its log and when it is in sync again: by epochs; the defects look at something else."""

from __future__ import annotations

from random import Random

import pytest

from assay.cluster.sim.disk import SimDisk
from assay.system_under_test.log.epochs import EpochHistory
from assay.system_under_test.protocol.internal import EpochAnswer
from assay.system_under_test.replication.traits import LogBounds, select_replication_traits

OWN = ((1, 0), (2, 5))


def cut(answer: EpochAnswer, marks: LogBounds, *defects: str) -> tuple[int, bool]:
    disk = SimDisk(Random(0))
    disk.write("t-0/log", b"")
    epochs = EpochHistory(disk.storage(fsync_delay=lambda: 0), "t-0")
    epochs.replace(OWN)
    return select_replication_traits(defects).find_divergence(answer, epochs, marks)


def answer(epoch: int, end: int) -> EpochAnswer:
    return EpochAnswer(topic="t", partition=0, error_code=0, epoch=epoch, end_offset=end)


@pytest.mark.parametrize("high_watermark", [0, 4, 9, 12])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((2, 10), (10, True)),  # the leader's epoch ended earlier
        ((2, 20), (12, True)),  # the leader has more of it
        ((1, 4), (4, False)),  # there is no epoch 2 there, and the history before it may differ, too
        ((1, 8), (5, False)),
    ],
)
def test_a_follower_cuts_where_an_epoch_ends_on_either_side_whatever_is_committed(
    given: tuple[int, int], expected: tuple[int, bool], high_watermark: int
) -> None:
    assert cut(answer(*given), LogBounds(12, high_watermark)) == expected


@pytest.mark.parametrize("defect", ["truncate-to-hw", "hw-checkpoint-lost"])
def test_with_the_defect_it_cuts_at_its_high_watermark(defect: str) -> None:
    assert cut(answer(2, 20), LogBounds(12, 7), defect) == (7, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [((2, 10), (10, True)), ((2, 20), (12, True)), ((1, 4), (4, True)), ((1, 8), (8, True))],
)
def test_with_the_defect_the_first_answer_is_the_last_also_of_a_leader_without_the_epoch(
    given: tuple[int, int], expected: tuple[int, bool]
) -> None:
    """If the leader knows the follower's last epoch, the follower cuts where the correct build does."""
    assert cut(answer(*given), LogBounds(12, 4), "double-failover") == expected
    assert (cut(answer(*given), LogBounds(12, 4)) == expected) is (given[0] == 2)


@pytest.mark.parametrize(
    ("position", "correct", "defective"),
    [
        (4, False, False),  # it lacks what is committed
        (5, False, True),  # it has that, and not what earlier leaders had taken
        (7, False, True),
        (8, True, True),
    ],
)
def test_only_with_the_defect_a_follower_rejoins_below_the_start_of_the_epoch(
    position: int, correct: bool, defective: bool
) -> None:
    high_watermark, start = 5, 8
    assert select_replication_traits(()).may_rejoin(position, high_watermark, start) is correct
    assert select_replication_traits(["early-isr-rejoin"]).may_rejoin(position, high_watermark, start) is defective
