"""Who claims a controller epoch: two processes, and the nearest lines in which that is right."""

from __future__ import annotations

import pytest

from assay.system_under_test.invariants.invariant import EventLine
from assay.system_under_test.invariants.invariant_set import OneControllerPerEpoch


def broken(*claims: tuple[str, int, int]) -> list[str]:
    one = OneControllerPerEpoch()
    return [
        broken.claim
        for node, incarnation, epoch in claims
        for broken in one.event(
            node, EventLine("became-controller", int(node[1:]), incarnation, controller_epoch=epoch)
        )
    ]


def test_two_nodes_or_two_lives_of_one_with_the_same_epoch_are_reported() -> None:
    assert broken(("n1", 1, 5), ("n2", 1, 5)) == ["n2 became controller in epoch 5, as n1 had."]
    assert broken(("n1", 1, 5), ("n1", 2, 5)) == ["n1 became controller in epoch 5, as an earlier process of n1 had."]


@pytest.mark.parametrize(
    "second", [("n2", 1, 6), ("n1", 2, 6), ("n1", 1, 5), ("n2", 1, 4)],
    ids=["the next", "itself again", "said twice", "one that was late"],
)  # fmt: skip
def test_one_process_for_each_epoch_is_right(second: tuple[str, int, int]) -> None:
    assert not broken(("n1", 1, 5), second)
