"""Who led when, from the nodes' own words."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.core.history import HistoryReader, HistoryWriter
from assay.harness.core.operation import Effect
from assay.reports.faults import read_fault_bands
from assay.reports.history_db import HistoryDatabase
from assay.reports.leadership import (
    CONTROLLER,
    SIMULTANEOUS,
    LeadershipTerm,
    compute_terms,
    find_deaths,
    group_alike,
    natural_sort_key,
    read_leadership,
)

from helpers.fault_rows import impact
from helpers.run_folders import completed

END = 100


def event(time: int, node: str, name: str, *, key: str | None = "k", epoch: int = 0, incarnation: int = 1) -> Any:
    return {"time": time, "node": node, "incarnation": incarnation, "event": name, "key": key, "epoch": epoch,
            "controller_epoch": epoch}  # fmt: skip


def test_a_leader_that_does_not_know_believes_until_it_says_that_it_follows() -> None:
    old, new = compute_terms(
        [
            event(0, "n1", "became-leader"),
            event(40, "n2", "became-leader", epoch=1),
            event(60, "n1", "became-follower", epoch=1),
        ],
        [],
        END,
    )
    assert (old.node, old.start, old.stop, old.believed) == ("n1", 0, 40, 60)
    assert (new.node, new.epoch, new.start, new.stop, new.believed) == ("n2", 1, 40, END, END)


def test_a_killed_leader_leads_no_longer_and_leaves_a_gap() -> None:
    old, _ = compute_terms([event(0, "n1", "became-leader"), event(40, "n2", "became-leader")], [(30, "n1")], END)
    assert (old.stop, old.believed) == (30, 30)


def test_a_new_life_ends_what_the_former_believed() -> None:
    rows = [event(0, "n1", "became-leader"), event(50, "n1", "registered", key=None, incarnation=2)]
    (term,) = compute_terms(rows, [], END)
    assert term.believed == 50


def test_a_leader_whose_election_is_the_first_sign_of_a_new_life_leads_on() -> None:
    rows = [event(0, "n1", "became-leader"), event(50, "n1", "became-leader", epoch=1, incarnation=2)]
    former, latter = compute_terms(rows, [], END)
    assert (former.stop, former.believed) == (50, 50)
    assert (latter.start, latter.stop, latter.believed) == (50, END, END)


def test_controllers_have_a_lane_of_their_own() -> None:
    rows = [
        event(0, "n1", "became-controller", key=None, epoch=4),
        event(20, "n1", "became-follower", key="k"),
        event(70, "n1", "resigned-controller", key=None),
    ]
    (term,) = compute_terms(rows, [], END)
    assert (term.lane, term.epoch, term.stop) == (CONTROLLER, 4, 70)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 90),
            st.sampled_from(["n1", "n2", "n3"]),
            st.sampled_from(["became-leader", "became-follower"]),
            st.integers(1, 2),
        )
    ).map(sorted)
)
def test_reigns_never_end_before_they_begin_nor_overlap_but_in_belief(
    changes: list[tuple[int, str, str, int]],
) -> None:
    rows = [event(time, node, name, incarnation=life) for time, node, name, life in changes]
    terms = compute_terms(rows, [], END)
    assert len(terms) == sum(1 for change in changes if change[2] == "became-leader")
    assert all(term.start <= term.stop <= term.believed <= END for term in terms)
    assert all(one.stop <= other.start for one, other in itertools.pairwise(terms))


def test_keys_are_ordered_as_people_count() -> None:
    assert sorted(["orders-10", "orders-2", "orders", "a1b"], key=natural_sort_key) == [
        "a1b",
        "orders",
        "orders-2",
        "orders-10",
    ]
    huge = [f"a-{digit * 5000}" for digit in "19"]
    assert sorted([*huge[::-1], "a-007", "a-8"], key=natural_sort_key) == ["a-007", "a-8", *huge]


@pytest.mark.parametrize(
    ("fault", "ended"),
    [("kill", True), ("power-loss", True), ("corrupt", True), ("stop", False), ("partition", False),
     ("restart-rolling", False), ("kill@main", True), ("kill@agent", False)],
)  # fmt: skip
def test_who_ends_with_a_fault_leads_no_longer(tmp_path: Path, fault: str, ended: bool) -> None:
    """A server without power does not go on believing; one of a rolling restart ends some time later."""
    fault, _, process = fault.partition("@")
    detail = {"process": process} if process else {}
    with HistoryWriter(tmp_path / "history") as writer:
        for time, phase in ((1, "intended"), (30, "injected"), (60, "healed")):
            writer.fault(id=1, fault=fault, targets=["n1"], phase=phase, time=time, detail=detail, **impact(fault))
    with HistoryDatabase(HistoryReader(tmp_path / "history")) as recording:
        bands, _ = read_fault_bands(recording)
    assert find_deaths(bands) == ([(30, "n1")] if ended else [])
    (term,) = compute_terms([event(0, "n1", "became-leader")], find_deaths(bands), END)
    assert term.believed == (30 if ended else END)


def term(lane: str, node: str, start: int, stop: int) -> LeadershipTerm:
    return LeadershipTerm(lane, node, 0, start, stop, stop)


def test_partitions_of_one_topic_that_are_led_alike_are_one() -> None:
    terms = [
        *(
            term(f"o-{number}", node, start, start + SIMULTANEOUS * 5)
            for number in (0, 3)
            for node, start in (("n1", 0), ("n2", 9))
        ),
        term("o-1", "n1", 0, SIMULTANEOUS * 5),
        term("o-2", "n1", SIMULTANEOUS - 1, SIMULTANEOUS * 5),
        term("o-4", "n1", SIMULTANEOUS, SIMULTANEOUS * 5),
        term("p-1", "n1", 0, SIMULTANEOUS * 5),
        term("o-5", "n2", 0, SIMULTANEOUS * 5),
    ]
    keys = ["o-0", "o-1", "o-2", "o-3", "o-4", "o-5", "p-1"]
    assert group_alike(keys, [], terms) == {
        "o-0": ("o-3",), "o-1": ("o-2",), "o-4": (), "o-5": (), "p-1": (),
    }  # fmt: skip
    assert group_alike(keys, ["o-2", "o-0"], terms) == {key: () for key in keys}


def test_what_clients_know_of_is_never_folded_and_stands_above_the_rest(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "history")
    writer.completed(completed(0, 0, key="orders-0"), [Effect("append", "orders-0", 0, 0)])
    for number in range(50):
        for key, at in ((f"__offsets-{number}", number), (f"orders-{number % 2}", number)):
            writer.event(time=at, node=f"n{1 + number % 3}", incarnation=1, seq=2 * number + (key[0] == "o"), epoch=0,
                         event="became-leader", key=key)  # fmt: skip
    writer.close()
    with HistoryDatabase(HistoryReader(tmp_path / "history")) as recording:
        led = read_leadership(recording, (), ["__offsets-7"], 10**9)
    assert led.lanes == ("__offsets-7", "orders-0", "__offsets-0", "__offsets-1", "__offsets-2", "orders-1")
    assert {lane: len(others) for lane, others in led.folded.items()} == {
        "__offsets-0": 16, "__offsets-1": 15, "__offsets-2": 15,
    }  # fmt: skip
    assert led.omitted == 0
    assert led.label("__offsets-0") == "__offsets-0 +16"
    assert led.label("orders-0") == "orders-0"


def test_what_a_system_answered_is_drawn_and_called_that(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history") as writer:
        for seq, (time, node, name) in enumerate(
            [(1, "n1", "seen-leading"), (3, "n1", "seen-gone"), (3, "n2", "seen-leading"), (5, "n2", "seen-gone")]
        ):
            writer.event(time=time, node=node, incarnation=0, seq=seq, event=name, key="main")
    with HistoryDatabase(HistoryReader(tmp_path / "history")) as recording:
        led = read_leadership(recording, [], [], 9)
    assert led.from_queries
    assert led.lanes == ("main",)
    assert [(one.node, one.start, one.stop, one.believed) for one in led.terms] == [("n1", 1, 3, 3), ("n2", 3, 5, 5)]
