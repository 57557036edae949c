from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.node import NodeError
from assay.nemesis.engine.cut_ledger import CutLedger, Drop, cut_both_ways

from helpers.nemesis_fakes import FakeCluster, run

NAMES = ["zk1", "n1", "n2", "n3"]
DROPS = st.lists(st.sampled_from([(a, b) for a in NAMES for b in NAMES if a != b]), max_size=6, unique=True)
COMMANDS = st.lists(st.tuples(st.integers(1, 3), st.none() | DROPS), max_size=12)


def rules(cluster: FakeCluster) -> set[Drop]:
    return {(node.name, peer) for node in cluster.nodes for peer in node.rules}


@given(COMMANDS)
def test_what_is_dropped_is_what_any_fault_wants_dropped(commands: list[tuple[int, list[Drop] | None]]) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cuts, wanted = CutLedger(cluster), dict[int, list[Drop]]()
        for holder, drops in commands:
            if drops is None:
                wanted.pop(holder, None)
                await cuts.remove(holder)
            else:
                wanted[holder] = drops
                await cuts.add(holder, drops)
            assert rules(cluster) == {drop for drops in wanted.values() for drop in drops} == set(cuts.list_drops())
        for holder in list(wanted):
            await cuts.remove(holder)
        assert cluster.untouched

    run(main())


@given(COMMANDS)
def test_counts_never_go_back(commands: list[tuple[int, list[Drop] | None]]) -> None:
    every = [(a, b) for a in NAMES for b in NAMES if a != b]

    async def main() -> None:
        cuts = CutLedger(FakeCluster())
        before = await cuts.counts(every)
        for holder, drops in commands:
            await (cuts.remove(holder) if drops is None else cuts.add(holder, drops))
            await asyncio.sleep(1)
            after = await cuts.counts(every)
            assert all(after[drop] >= before[drop] for drop in every)
            assert all(after[drop] > before[drop] for drop in cuts.list_drops())
            before = after

    run(main())


def test_a_node_that_refuses_does_not_keep_the_others_from_it_and_is_retried() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cuts = CutLedger(cluster)
        await cuts.add(1, cut_both_ways(["n1"], ["n2", "n3"]))
        cluster.node("n1").refuse["accept_all"] = 1
        with pytest.raises(NodeError, match="n1: accept_all refused"):
            await cuts.remove(1)
        assert rules(cluster) == {("n1", "n2"), ("n1", "n3")}
        await cuts.remove(1)
        assert cluster.untouched

    run(main())


def test_rules_of_a_node_that_failed_midway_are_removed_all_the_same() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cuts = CutLedger(cluster)
        cluster.node("n1").refuse["drop_from"] = 1
        with pytest.raises(NodeError, match="n1: drop_from refused"):
            await cuts.add(1, cut_both_ways(["n1"], ["n2"]))
        assert rules(cluster) == {("n2", "n1")}
        await cuts.remove(1)
        assert cluster.untouched
        assert "accept_all" in cluster.node("n1").calls, "who knows what it did before it failed"

    run(main())


def test_counters_that_cannot_be_read_do_not_stop_the_heal() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cuts = CutLedger(cluster)
        await cuts.add(1, cut_both_ways(["n1"], ["n2"]))
        cluster.node("n1").refuse["dropped"] = 1
        await cuts.remove(1)
        assert cluster.untouched
        assert cuts.troubles == ["n1: dropped refused"]

    run(main())
