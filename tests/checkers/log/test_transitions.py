"""Transitions of the controller's state machines: each that is not valid, and its legal neighbours."""

from __future__ import annotations

import random
from itertools import pairwise, product
from pathlib import Path

import pytest

from assay.checkers.check import create_views, read_findings
from assay.checkers.engine import SQLite
from assay.checkers.judging.contract import forbid
from assay.checkers.judging.history_views import register_history
from assay.checkers.judging.judge import judge
from assay.checkers.log.epochs import REPLICATION_ANOMALIES
from assay.checkers.log.transitions import ILLEGAL_TRANSITION, TRANSITIONS, VALID
from assay.harness.core.history import HistoryReader
from assay.system_under_test.controller.state_machines import PARTITION_TRANSITIONS, REPLICA_TRANSITIONS

from helpers.log_histories import Row, write
from helpers.transition_histories import illegal, leaderless, step, steps


def found(folder: Path, events: list[Row]) -> list[str]:
    """The claims."""
    with SQLite() as engine:
        register_history(engine, write(folder / "history", [], events=events))
        create_views(engine, ILLEGAL_TRANSITION.views)
        return [finding.claim for finding in read_findings(engine, ILLEGAL_TRANSITION)]


def walk(*states: str, replica: int | None = None, first: int = 1) -> list[Row]:
    return [step(first + n, *pair, replica=replica) for n, pair in enumerate(pairwise(states))]


def test_the_check_has_the_transitions_of_kafka_and_so_has_the_controller() -> None:
    """PartitionStateMachine.scala and ReplicaStateMachine.scala of 0.10.2, where each target names its predecessors."""
    assert {name: sorted(pairs) for name, pairs in VALID.items()} == {
        "partition-transition": sorted(f"{f} {t}" for t, former in PARTITION_TRANSITIONS.items() for f in former),
        "replica-transition": sorted(f"{f} {t}" for t, former in REPLICA_TRANSITIONS.items() for f in former),
    }
    assert {t: set(former) for t, former in REPLICA_TRANSITIONS.items()} == {
        "New": {"NonExistent"},
        "Online": {"New", "Online", "Offline", "ReplicaDeletionIneligible"},
        "Offline": {"New", "Online", "Offline", "ReplicaDeletionIneligible"},
        "ReplicaDeletionStarted": {"Offline"},
        "ReplicaDeletionSuccessful": {"ReplicaDeletionStarted"},
        "ReplicaDeletionIneligible": {"ReplicaDeletionStarted"},
        "NonExistent": {"ReplicaDeletionSuccessful"},
    }
    assert {t: set(former) for t, former in PARTITION_TRANSITIONS.items()} == {
        "NonExistent": {"Offline"},
        "New": {"NonExistent"},
        "Online": {"New", "Online", "Offline"},
        "Offline": {"New", "Online", "Offline"},
    }


def test_of_all_pairs_of_states_those_that_are_not_valid_are_reported(tmp_path: Path) -> None:
    for replica, table in ((None, PARTITION_TRANSITIONS), (2, REPLICA_TRANSITIONS)):
        states, name = [state.value for state in table], "partition" if replica is None else "replica"
        events = [
            step(n, former, now, replica=replica, key=f"{former}.{now}-0")
            for n, (former, now) in enumerate(product(states, states), 1)
        ]
        with SQLite() as engine:
            register_history(engine, write(tmp_path / name / "history", [], events=events))
            create_views(engine, ILLEGAL_TRANSITION.views)
            rows = engine.rows(f"select from_state, to_state from {ILLEGAL_TRANSITION.found}")
        reported = {(row["from_state"], row["to_state"]) for row in rows}
        valid = {(former.value, now.value) for now, formers in table.items() for former in formers}
        assert reported == set(product(states, states)) - valid


def test_a_deletion_of_a_replica_that_is_online_is_reported(tmp_path: Path) -> None:
    began = walk("NonExistent", "New", "Online", "ReplicaDeletionStarted", replica=2)
    assert found(tmp_path / "online", began) == [
        "In controller epoch 1 n1 took replica 2 of t-0 from Online to ReplicaDeletionStarted, "
        "which is no valid transition."
    ]
    deleted = walk("NonExistent", "New", "Online", "Offline", "ReplicaDeletionStarted", "ReplicaDeletionSuccessful",
                   "NonExistent", replica=2)  # fmt: skip
    assert not found(tmp_path / "offline", deleted)


def test_a_step_that_was_not_written_is_seen_by_the_next_one(tmp_path: Path) -> None:
    """Each of the two is valid by itself."""
    began = [*walk("NonExistent", "New", "Online", replica=2), step(3, "Offline", "ReplicaDeletionStarted", replica=2)]
    assert found(tmp_path / "unsaid", began) == [
        "In controller epoch 1 n1 took replica 2 of t-0 from Offline to ReplicaDeletionStarted, "
        "though it had last taken it to Online."
    ]
    assert not found(tmp_path / "a line is missing", [*began[:2], began[2] | {"seq": 4}])
    assert not found(tmp_path / "another replica", [*began[:2], began[2] | {"replica": 3}])
    assert not found(tmp_path / "another epoch", [*began[:2], began[2] | {"controller_epoch": 2}])
    assert not found(tmp_path / "another topic of the name", [*began[:2], began[2] | {"key": "t#2-0"}])


def test_a_partition_goes_offline_when_no_one_leads_it(tmp_path: Path) -> None:
    """Online to Online is valid: another leader. It is not when there was none in between."""
    skipped = [*walk("New", "Online"), leaderless(2), step(3, "Online", "Online")]
    assert found(tmp_path / "skipped", skipped) == [
        "In controller epoch 1 n1 took t-0 from Online to Online, though it had written in between that no one leads "
        "it."
    ]
    assert not found(tmp_path / "led", [skipped[0], leaderless(2, leader=3), skipped[2]])
    assert not found(tmp_path / "offline", [*skipped[:2], *walk("Online", "Offline", "Online", first=3)])
    assert not found(tmp_path / "the next controller", [skipped[0], leaderless(2, epoch=2), skipped[2]])
    assert not found(tmp_path / "another partition", [skipped[0], leaderless(2, key="t-1"), skipped[2]])
    replica = [one | {"event": "replica-transition", "replica": 2} for one in (skipped[0], skipped[2])]
    assert not found(tmp_path / "a replica", [replica[0], skipped[1], replica[1]])


def test_only_the_first_step_in_a_controller_epoch_may_come_from_nowhere(tmp_path: Path) -> None:
    assert not found(tmp_path / "begins", [step(1, None, "Online"), step(2, "Online", "Offline")])
    assert not found(tmp_path / "next", [step(1, None, "Online"), step(2, None, "Offline", epoch=2)])
    (claim,) = found(tmp_path / "later", [step(1, None, "Online"), step(9, None, "Offline")])
    assert "took t-0 from no state to Offline, though it had last taken it to Online." in claim
    (claim,) = found(tmp_path / "unknown", [step(1, None, "Stopped")])
    assert "took t-0 from no state to Stopped, which is no valid transition." in claim


def test_random_steps_get_the_answers_of_a_walk(tmp_path: Path) -> None:
    events = [row for n in range(60) for row in steps(f"p{n}-0", random.Random(f"transitions/{n}"))]
    expected = {(key, seq) for n in range(60)
                for key, seq in illegal([row for row in events if row["key"] == f"p{n}-0"])}  # fmt: skip
    with SQLite() as engine:
        register_history(engine, write(tmp_path / "history", [], events=events))
        create_views(engine, ILLEGAL_TRANSITION.views)
        rows = engine.rows(f"select * from {ILLEGAL_TRANSITION.found}")
    assert len(expected) > 100
    assert {row["why"] for row in rows} == {"invalid", "discontinuous", "leaderless"}
    assert {(row["key"], row["seq"]) for row in rows} == expected


@pytest.mark.parametrize("events", [[], [leaderless(1)]], ids=["nothing", "no states"])
def test_a_system_that_does_not_say_its_states_is_not_doubted_for_it(tmp_path: Path, events: list[Row]) -> None:
    with SQLite() as engine:
        judgement = judge(
            HistoryReader(write(tmp_path / "history", [], events=events)), forbid(*REPLICATION_ANOMALIES), engine
        )
    assert not [reason for reason in judgement.unknown if TRANSITIONS.name in reason]
    assert TRANSITIONS.name not in [one.check for one in judgement.examined]
