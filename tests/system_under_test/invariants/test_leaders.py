"""Who appends in a leader epoch: two nodes, and the nearest lines in which that is right."""

from __future__ import annotations

import pytest

from assay.system_under_test.invariants.invariant import EventLine
from assay.system_under_test.invariants.invariant_set import OneLeaderPerEpoch

FIRST = {"key": "orders-0", "topic_zxid": 7, "epoch": 3}


def broken(*lines: tuple[str, dict[str, object]], event: str = "first-append-in-epoch") -> list[str]:
    one = OneLeaderPerEpoch()
    found = [
        broken.claim
        for node, given in lines
        for broken in one.event(node, EventLine(event, int(node[1:]), 1, **(FIRST | given)))  # type: ignore[arg-type]
    ]
    assert one.checks == (len(lines) if event == "first-append-in-epoch" else 0)
    return found


def test_two_nodes_that_append_in_one_epoch_are_reported() -> None:
    assert broken(("n1", {}), ("n2", {})) == ["n2 appended to orders-0 in leader epoch 3, in which n1 had appended."]


@pytest.mark.parametrize(
    "second",
    [("n1", {}), ("n2", {"epoch": 4}), ("n2", {"epoch": 2}), ("n2", {"key": "orders-1"}), ("n2", {"topic_zxid": 8})],
    ids=["the same node", "the next epoch", "a deposed leader", "another partition", "the topic made again"],
)
def test_one_node_in_each_epoch_is_right(second: tuple[str, dict[str, object]]) -> None:
    assert not broken(("n1", {}), second)


def test_who_leads_and_appends_nothing_does_no_harm() -> None:
    assert not broken(("n1", {}), ("n2", {}), event="became-leader")
