"""Sessions and in-sync sets as spells on the axis, from what the nodes said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from assay.reports import zookeeper
from assay.reports.zookeeper import InSyncInterval, ZooKeeperSession, compute_in_sync, compute_sessions


def said(time: int, node: str, event: str) -> dict[str, Any]:
    return {"time": time, "node": node, "incarnation": 1, "event": event}


def test_a_session_lasts_until_it_is_lost_or_its_node_begins_again_or_is_killed() -> None:
    rows = [
        said(1, "n1", "registered"), said(2, "n2", "registered"), said(5, "n1", "session-lost"),
        said(7, "n1", "registered"), said(9, "n2", "registered"),
    ]  # fmt: skip
    assert compute_sessions(rows, [(8, "n1"), (8, "zk1")], end=20) == [
        ZooKeeperSession("n1", 1, 5, True), ZooKeeperSession("n1", 7, 8, False), ZooKeeperSession("n2", 2, 9, False),
        ZooKeeperSession("n2", 9, 20, False)
    ]  # fmt: skip


def state(time: int, epoch: int, isr: Any, node: str = "n1", key: str = "orders-0") -> dict[str, Any]:
    """As nodes said it before it was a column."""
    detail = msgspec.json.encode({"isr": isr}).decode()
    return {"time": time, "node": node, "event": "isr-change", "key": key, "epoch": epoch, "isr": None, "osr": None,
            "detail": detail}  # fmt: skip


def test_what_is_out_of_sync_is_known_where_nodes_say_it() -> None:
    rows = [
        state(1, 0, []) | {"isr": "2,1", "osr": "3"},
        state(2, 0, []) | {"isr": "1,2", "osr": None},
        state(4, 0, []) | {"isr": "1,2", "osr": "3,4"},
        state(6, 1, []) | {"isr": "1,2,3,4", "osr": ""},
    ]
    assert compute_in_sync(rows, end=9) == [
        InSyncInterval("orders-0", (1, 2), 0, "n1", 1, 4, (3,)),
        InSyncInterval("orders-0", (1, 2), 0, "n1", 4, 6, (3, 4)),
        InSyncInterval("orders-0", (1, 2, 3, 4), 1, "n1", 6, 9, ()),
    ]


def test_in_sync_sets_follow_each_other_per_partition() -> None:
    rows = [state(1, 0, [1, 2, 3]), state(2, 0, [2, 1], key="orders-1"), state(3, 0, [1]), state(5, 1, [2, 3], "n2")]
    assert compute_in_sync(rows, end=9) == [
        InSyncInterval("orders-0", (1, 2, 3), 0, "n1", 1, 3),
        InSyncInterval("orders-0", (1,), 0, "n1", 3, 5),
        InSyncInterval("orders-0", (2, 3), 1, "n2", 5, 9),
        InSyncInterval("orders-1", (1, 2), 0, "n1", 2, 9),
    ]


def test_what_a_superseded_leader_still_says_and_what_says_nothing_is_left_out() -> None:
    rows = [state(1, 4, [1, 2]), state(2, 3, [1], "n3"), state(3, 4, [2, 1]), state(4, 4, "x"), state(5, 4, ["a"])]
    rows.append({**state(6, 4, [1]), "detail": "{broken"})
    assert compute_in_sync(rows, end=9) == [InSyncInterval("orders-0", (1, 2), 4, "n1", 1, 9)]


def test_nothing_is_drawn_after_the_last_row_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "MOST_EVENTS", 3)
    rows = [state(1, 0, [1, 2]), state(3, 0, [1])]
    assert zookeeper._find_known_end(rows, 9) == 9
    assert zookeeper._find_known_end([*rows, state(5, 0, [1, 2])], 9) == 5
    assert zookeeper._find_known_end([], 9) == 9
