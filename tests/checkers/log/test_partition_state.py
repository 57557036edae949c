"""Versions of a partition's state, moves, and elections by length: each contradiction, and its legal neighbours."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.log.partition_state import STATES

from helpers.judging import opened
from helpers.log_histories import Row, write
from helpers.state_histories import early, numbered, overlooked, recorded, registered, said, states, two_sets, written


def found(folder: Path, events: list[Row]) -> dict[str, str]:
    """Anomaly to claim; one finding each."""
    claims: dict[str, str] = {}
    with opened(write(folder / "history", [], events=events)) as engine:
        for check in STATES.checks:
            create_views(engine, check.views)
            for finding in read_findings(engine, check):
                assert finding.anomaly not in claims
                claims[finding.anomaly] = finding.claim
    return claims


def read(isr: list[int], version: int = 7, **given: object) -> Row:
    return said(1, "partition-state-read", 4, version, isr, **{"node": "n2", **given})


def changed(isr: list[int], version: int = 7) -> Row:
    return said(1, "isr-change", 4, version, isr)


def test_two_accounts_of_one_version_are_reported_with_both_nodes(tmp_path: Path) -> None:
    claims = found(tmp_path / "two", [changed([1, 2]), read([1, 2, 3])])
    assert claims == {
        "two-in-sync-sets": "Of version 7 of the state of t-0, n2 had 1,2,3 in sync, and n1 had 1,2 in sync."
    }
    eligible = found(tmp_path / "eligible", [changed([1]), read([1], elr=[2])])
    assert "and n2 had 1 in sync and 2 eligible." in eligible["two-in-sync-sets"]
    assert not found(tmp_path / "agree", [changed([1, 2]), read([1, 2])])
    assert not found(tmp_path / "another version", [changed([1, 2]), read([1, 2, 3], 8)])
    assert not found(tmp_path / "another topic", [changed([1, 2]), read([1, 2, 3], key="t#2-0")])
    assert not found(tmp_path / "a life of which it is not known which", [
        changed([1, 2]) | {"key": "t#0-0"}, read([1, 2, 3], key="t#0-0")])  # fmt: skip


@pytest.mark.parametrize("name", ["reassignment-ended", "assignment-written"])
def test_a_move_that_goes_on_before_all_are_in_sync_is_reported(tmp_path: Path, name: str) -> None:
    gone = {} if name == "reassignment-ended" else {"gone": [4]}
    (claim,) = found(tmp_path / "early", [said(1, name, 4, 7, [1, 2], replicas=[1, 2, 3], **gone)]).values()
    done = "ended the move of" if not gone else "took the replicas 4 away from"
    assert claim == f"N1 {done} t-0 to 1,2,3, when only 1,2 was in sync."
    (claim,) = found(tmp_path / "the old one", [said(1, name, 4, 7, [1, 2, 4], replicas=[1, 2, 3], **gone)]).values()
    assert claim.endswith("to 1,2,3, when only 1,2,4 was in sync.")
    assert found(tmp_path / "a longer number", [said(1, name, 4, 7, [1, 23], replicas=[1, 2], **gone)])
    assert not found(tmp_path / "more than stay", [said(1, name, 4, 7, [4, 1, 2, 3], replicas=[1, 2, 3], **gone)])
    assert not found(tmp_path / "in time", [said(1, name, 4, 7, [3, 2, 1], replicas=[1, 2, 3], **gone)])
    grown = said(1, "assignment-written", 4, 7, [1, 2], replicas=[1, 2, 3], gone=[])
    assert not found(tmp_path / "new replicas, which copy", [grown])


NODES = [registered("n1", 1), registered("n2", 2), registered("n3", 3)]
NONE_LEADS = written(1, 4, -1, [1, 2], elr=[3])
ELECTED = written(1, 5, 2, [2])
RECORDED = [recorded(1, "n1", 3, 8), recorded(1, "n2", 3, 9), recorded(1, "n3", 2, 12)]


def test_an_election_by_length_that_leaves_a_log_out_is_reported(tmp_path: Path) -> None:
    claims = found(tmp_path / "unasked", numbered([*NODES, NONE_LEADS, RECORDED[1], RECORDED[2], ELECTED]))
    assert claims == {
        "overlooked-log": (
            "Broker 2 was elected leader of t-0 for epoch 5 by the length of the logs, and n1, one of the members "
            "1,2,3 that had all failed, was not asked."
        )
    }
    longer = found(
        tmp_path / "longer", numbered([*NODES, NONE_LEADS, recorded(1, "n1", 3, 10), *RECORDED[1:], ELECTED])
    )
    assert (
        "n1, one of the members 1,2,3 that had all failed, had a log to offset 10 in epoch 3, and the leader's went"
        in (longer["overlooked-log"])
    )
    younger = [*RECORDED[:2], recorded(1, "n3", 4, 1)]
    same = numbered([*NODES, NONE_LEADS, *RECORDED[1:], written(1, 5, 2, [2], elr=[3])])
    assert "was not asked" in found(tmp_path / "the third has the same log", same)["overlooked-log"]
    assert found(tmp_path / "a later epoch", numbered([*NODES, NONE_LEADS, *younger, ELECTED]))


LEGAL: dict[str, list[Row]] = {
    "all were asked, and the longest leads": [NONE_LEADS, *RECORDED, ELECTED],
    "those with the same log stay eligible": [NONE_LEADS, *RECORDED, written(1, 5, 2, [2], elr=[3])],
    "it is not a member": [written(1, 4, -1, [1, 2]), *RECORDED[:2], ELECTED],
    "there was a leader before": [written(1, 4, 1, [1, 2], elr=[3]), ELECTED],
    "it came back cleanly, and the others stay eligible": [NONE_LEADS, written(1, 5, 2, [2], elr=[1, 3])],
    "one is enough, and so elr is empty": [NONE_LEADS, written(1, 5, 2, [2], min_insync=1)],
    "an unclean election is allowed": [NONE_LEADS, written(1, 5, 2, [2], unclean=True)],
    "its log has grown between two questions": [NONE_LEADS, *RECORDED, recorded(1, "n1", 3, 10), ELECTED],
    "it is damaged": [NONE_LEADS, recorded(1, "n1", -1, -1), *RECORDED[1:], ELECTED],
}


@pytest.mark.parametrize("case", LEGAL)
def test_other_elections_are_not_held_against_it(tmp_path: Path, case: str) -> None:
    assert not found(tmp_path, numbered([dict(one) for one in (*NODES, *LEGAL[case])]))


def test_a_node_of_which_lines_are_missing_may_have_been_asked(tmp_path: Path) -> None:
    events = numbered([*NODES, NONE_LEADS, RECORDED[1], RECORDED[2], ELECTED, recorded(1, "n1", 3, 8, 9)])
    assert found(tmp_path / "whole", events)
    events[-1]["seq"] += 1
    assert not found(tmp_path / "missing", events)


def test_random_accounts_get_the_answers_of_loops(tmp_path: Path) -> None:
    events = [row for n in range(60) for row in states(f"s{n}-0", random.Random(f"states/{n}"), 1 + 3 * n)]
    expected = two_sets(events), early(events), overlooked(events)
    columns = ("key", "version"), ("key", "isr"), ("key", "epoch", "node")
    with opened(write(tmp_path / "history", [], events=events)) as engine:
        for check, wanted, of in zip(STATES.checks, expected, columns, strict=True):
            create_views(engine, check.views)
            rows = engine.rows(f"select * from {check.found}")
            assert {tuple(row[column] for column in of) for row in rows} == wanted
            assert len(wanted) > 10
