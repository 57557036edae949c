"""The data tree against a model: transactions are all or nothing, versions and counts add up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import BadArgumentsError, NoNodeError
from kazoo.protocol.states import EventType

from assay.cluster.sim.zookeeper.tree import (
    Change,
    CheckVersion,
    Create,
    Delete,
    SetData,
    TransactionError,
    Tree,
    check_path,
)

PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/a/b/c", "/b/a"])
VERSIONS = st.sampled_from([-1, -1, -1, 0, 1])
CHANGES = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3), st.sampled_from([0, 0, 7]), st.booleans()),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(SetData, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(CheckVersion, PATHS, VERSIONS),
)
TRANSACTIONS = st.lists(st.lists(CHANGES, min_size=1, max_size=4), max_size=25)


def dump(tree: Tree, path: str = "/") -> dict[str, Any]:
    """Everything that a client can see."""
    seen: dict[str, Any] = {path: tree.get(path)}
    for name in tree.children(path):
        seen |= dump(tree, f"{path.rstrip('/')}/{name}")
    return seen


@given(TRANSACTIONS)
def test_a_transaction_that_fails_changes_nothing_and_one_that_succeeds_equals_its_steps(
    transactions: list[list[Change]],
) -> None:
    tree, single = Tree(), Tree()
    for changes in transactions:
        before = dump(tree), tree.zxid
        try:
            results, events = tree.transact(changes, 5)
        except TransactionError:
            assert (dump(tree), tree.zxid) == before
            continue
        assert tree.zxid == before[1] + 1
        assert len(results) == len(changes)
        stepwise = [single.transact([change], 5) for change in changes]
        assert [event for _, step in stepwise for event in step] == events
        assert {path: data for path, (data, _) in dump(single).items()} == {
            path: data for path, (data, _) in dump(tree).items()
        }


@given(TRANSACTIONS)
def test_stats_agree_with_the_tree(transactions: list[list[Change]]) -> None:
    tree = Tree()
    for changes in transactions:
        try:
            tree.transact(changes, 5)
        except TransactionError:
            continue
    for path, (data, stat) in dump(tree).items():
        assert stat.numChildren == len(tree.children(path))
        assert stat.dataLength == len(data)
        assert stat.czxid <= stat.mzxid <= tree.zxid
        assert stat.cversion >= stat.numChildren
        assert not (stat.ephemeralOwner and stat.numChildren)


def test_events_name_the_node_and_its_parent() -> None:
    tree = Tree()
    _, events = tree.transact([Create("/a", b""), SetData("/a", b"1"), Delete("/a")], 0)
    assert events == [
        (EventType.CREATED, "/a"),
        (EventType.CHILD, "/"),
        (EventType.CHANGED, "/a"),
        (EventType.DELETED, "/a"),
        (EventType.CHILD, "/"),
    ]


def test_the_failing_operation_is_named() -> None:
    tree = Tree()
    with pytest.raises(TransactionError) as caught:
        tree.transact([Create("/a", b""), Delete("/b"), Create("/c", b"")], 0)
    assert caught.value.index == 1
    assert isinstance(caught.value.error, NoNodeError)
    assert tree.exists("/a") is None


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/./a", "/a/..", "/a\0"])
def test_paths_that_zookeeper_refuses(path: str) -> None:
    with pytest.raises(BadArgumentsError):
        check_path(path)
